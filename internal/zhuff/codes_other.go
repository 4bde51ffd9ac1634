//go:build !amd64

package zhuff

func (c *codes) eights(dst, src []byte, p pending) (out, left int, _ pending) {
	return c.eightsPlainly(dst, src, p)
}
