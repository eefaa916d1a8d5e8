"""Images as bytes and as pixels: decoding, encoding, resizing, hashing. Knows nothing of plans or expressions.

Pixels are ``(height, width, channels)`` arrays of uint8 in modes L, LA, RGB and RGBA. What does the heavy work
(libjpeg-turbo, OpenCV, Pillow) gives up the GIL, so threads share it out among the cores.
"""
