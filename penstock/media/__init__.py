"""Pixels, sound and pages: decode the content of files. Nothing here knows plans or expressions.

sources       open a ``File``, a path, bytes or a scanned file for a decoder
images/       decode, encode, resize and hash images
ffmpeg        open containers with FFmpeg
audio         decode with libsndfile or FFmpeg
video         decode frame by frame
pdf           the text and the images of pages

It may import ``storage``, ``types``, ``events`` and the modules at the top.

Audio and video are decoded in bounded memory, a piece at a time. Image decoders release the GIL and therefore stay
on threads; if threads still wait for the GIL most of the time, fewer decode at once (``images``).
"""
