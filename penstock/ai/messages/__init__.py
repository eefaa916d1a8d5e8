"""Convert the values of a row to a request: text, attachments and chat messages."""
