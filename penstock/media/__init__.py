"""Pixels, sound and pages: decode what files hold. Nothing here knows plans or expressions.

sources       open a ``File``, a path, bytes or a scanned file for a decoder
images/       decode, encode, resize and hash images
audio, video  decode with libsndfile or FFmpeg, in bounded memory; ``ffmpeg`` opens containers
pdf           the text and the images of pages
file_methods  the methods of ``ImageFile``, ``AudioFile`` and ``VideoFile``

May import ``storage``, ``types`` and the modules at the top.
"""
