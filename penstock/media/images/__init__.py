"""Decode, encode, resize and hash images.

packages        the packages of the extra ``images``, loaded on first use
encoded_image   an encoded image: read the header first, decode the pixels later
jpeg_header, orientation    the size of a JPEG; the EXIF orientation
decoder         a column of encoded images to a column of pixels
decode_threads  the number of threads that decode at once
encoder         pixels as image files
pixels          resize, crop and convert
hashes          perceptual hashes

Pixels are ``(height, width, channels)`` arrays of uint8 in modes L, LA, RGB and RGBA. The libraries that do the
work (libjpeg-turbo, OpenCV, Pillow) release the GIL, so threads use all cores. The room imports what ``media`` may.
"""
