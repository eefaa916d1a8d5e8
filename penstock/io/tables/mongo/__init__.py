"""MongoDB, through pymongo: documents of collections as rows."""
