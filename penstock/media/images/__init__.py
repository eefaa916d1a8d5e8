"""Decode, encode, resize and hash images, independent of plans and expressions.

Pixels are ``(height, width, channels)`` arrays of uint8 in modes L, LA, RGB and RGBA. The libraries that do the
work (libjpeg-turbo, OpenCV, Pillow) release the GIL, so threads use all cores.
"""
