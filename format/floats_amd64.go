package format

// bf16Octets reads n > 0 times eight bf16 numbers.
//
//go:noescape
func bf16Octets(dst *float32, src *byte, n int)

// bf16Vectors reads as many bf16 numbers as fill whole registers, and returns what is left
// of both.
func bf16Vectors(dst []float32, row []byte) ([]float32, []byte) {
	n := min(len(dst), len(row)/2) / 8
	if n == 0 {
		return dst, row
	}
	bf16Octets(&dst[0], &row[0], n)
	return dst[8*n:], row[16*n:]
}
