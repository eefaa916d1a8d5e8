"""Decode, encode, resize and hash images.

decoder         a column of encoded images to a column of pixels
encoded_image   read the header first, decode the pixels later; ``jpeg_header``, ``orientation``
encode          pixels as image files
pixels          resize, crop and convert
hashes          perceptual hashes
decode_threads  how many threads decode at once
packages        the packages of the extra ``images``, loaded on first use

Pixels are ``(height, width, channels)`` arrays of uint8 in modes L, LA, RGB and RGBA. The libraries that do the
work (libjpeg-turbo, OpenCV, Pillow) release the GIL, so threads use all cores.
"""
