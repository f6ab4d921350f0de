# SPDX-License-Identifier: Apache-2.0
"""Contents of tensors as training leaves them, for what looks at compression.

All are little-endian.  Mantissas are random; signs and exponents are distributed as
those of weights, so that they shrink no more and no less.
"""


def _high_bytes():
    """256 high bytes of float32, as often as numbers around 0.02 have them: the sign
    and the upper seven bits of the exponent."""
    shares = ((0x3c, 150), (0x3b, 68), (0x3d, 20), (0x3a, 13), (0x39, 5))
    table = [byte for byte, n in shares for _ in range(n)]
    return bytes(byte | (0x80 if i % 2 else 0) for i, byte in enumerate(table))


_HIGH = _high_bytes()


def bf16(numbers, n):
    """n numbers of a trained tensor."""
    content = bytearray(numbers.randbytes(2 * n))
    content[1::2] = content[1::2].translate(_HIGH)
    return bytes(content)


def fp32(numbers, n):
    """The same, with all of their mantissas."""
    content = bytearray(numbers.randbytes(4 * n))
    content[3::4] = content[3::4].translate(_HIGH)
    return bytes(content)


def widened(numbers, n):
    """What was bfloat16, saved as float32: the low halves are zero."""
    narrow, content = bf16(numbers, n), bytearray(4 * n)
    content[2::4], content[3::4] = narrow[::2], narrow[1::2]
    return bytes(content)


def moments(numbers, rows, columns, unseen=3):
    """Moments of rows, of which one in `unseen` was never in a batch."""
    return b"".join(bytes(4 * columns) if numbers.randrange(unseen) == 0
                    else fp32(numbers, columns) for _ in range(rows))
