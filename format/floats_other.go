//go:build !amd64

package format

// bf16Vectors leaves all to the plain loop.
func bf16Vectors(dst []float32, row []byte) ([]float32, []byte) { return dst, row }
