// Package zhuff writes and reads zstd frames that hold Huffman-coded bytes and nothing
// else: no sequences, no window. That is all that can be had of bytes such as the high
// halves of floating-point values, where no string comes twice, and it is had several
// times faster than by an encoder that looks for strings. Any zstd decoder reads the
// frames; [Frame] reads these frames alone, and any block of one without those before it.
package zhuff
