// Package strided copies views of strided tensors into row-major order.
package strided

import "encoding/binary"

// tile is the rows and columns that are turned together: a line of memory is then
// brought into the cache once, and used whole.
const tile = 32

// Gather is a view of src in row-major order. The view has at least one dimension and
// no size of 0; its strides are in elements of width bytes, 1, 2, 4 or 8. The caller has
// seen that it lies within src and that its bytes can be counted.
func Gather(src []byte, size, stride []int64, width int) []byte {
	n := width
	for _, s := range size {
		n *= int(s)
	}
	out := make([]byte, n)
	size, stride = several(size, stride)
	// Where one element of the result is far from the next in src, those of another
	// dimension may be near: the last dimension and that one are copied together.
	last := len(size) - 1
	near := nearest(size, stride)
	hops := rowMajor(size, width) // in out; those in src are stride × width
	flat := plane{cols: int(size[last]), rows: 1, width: width, fromCol: int(stride[last]) * width}
	if near >= 0 {
		flat.rows, flat.fromRow, flat.toRow = int(size[near]), int(stride[near])*width, hops[near]
	}
	index := make([]int64, len(size))
	for from, to := 0, 0; ; {
		flat.copy(out[to:], src[from:])
		d := last - 1
		for ; d >= 0; d-- {
			if d == near {
				continue
			}
			from, to = from+int(stride[d])*width, to+hops[d]
			if index[d]++; index[d] < size[d] {
				break
			}
			from, to = from-int(size[d]*stride[d])*width, to-int(size[d])*hops[d]
			index[d] = 0
		}
		if d < 0 {
			return out
		}
	}
}

// several leaves out the dimensions of one element, but for the last.
func several(size, stride []int64) (s, st []int64) {
	last := len(size) - 1
	for d, n := range size {
		if n > 1 || d == last && len(s) == 0 {
			s, st = append(s, n), append(st, stride[d])
		}
	}
	return s, st
}

// nearest is the dimension before the last whose elements lie closest together, -1
// when none has several.
func nearest(size, stride []int64) int {
	near := -1
	for d := range len(size) - 1 {
		if size[d] > 1 && (near < 0 || stride[d] < stride[near]) {
			near = d
		}
	}
	return near
}

// rowMajor is the bytes from one element to the next of each dimension of a dense
// tensor.
func rowMajor(size []int64, width int) []int {
	hops := make([]int, len(size))
	for d := len(size) - 1; d >= 0; d-- {
		hops[d] = width
		width *= int(size[d])
	}
	return hops
}

// plane is two dimensions of a view: rows that lie toRow bytes apart in the result,
// where their elements are neighbours, and fromRow and fromCol apart in the source.
type plane struct {
	rows, cols, width       int
	fromRow, fromCol, toRow int
}

// copy fills the plane of the result that dst begins with.
func (p plane) copy(dst, src []byte) {
	rows, cols := 0, 0
	if p.fromRow == p.width {
		if rows, cols = p.rows, p.cols; p.width == 2 {
			rows, cols = rows&^3, cols&^3
		}
		p.tiles(dst, src, rows, cols)
	}
	p.plain(dst, src, 0, rows, cols)
	p.plain(dst, src, rows, p.rows, 0)
}

// plain copies, one by one, the elements of rows [from, to) from column col on.
func (p plane) plain(dst, src []byte, from, to, col int) {
	if col == p.cols {
		return
	}
	for r := from; r < to; r++ {
		at := r*p.fromRow + col*p.fromCol
		row := dst[r*p.toRow+col*p.width : r*p.toRow+p.cols*p.width]
		for i := 0; i < len(row); i += p.width {
			switch p.width {
			case 1:
				row[i] = src[at]
			case 2:
				binary.LittleEndian.PutUint16(row[i:], binary.LittleEndian.Uint16(src[at:]))
			case 4:
				binary.LittleEndian.PutUint32(row[i:], binary.LittleEndian.Uint32(src[at:]))
			default:
				binary.LittleEndian.PutUint64(row[i:], binary.LittleEndian.Uint64(src[at:]))
			}
			at += p.fromCol
		}
	}
}

// tiles copies the first rows and cols, multiples of 4 where elements have two bytes, of
// elements that are neighbours in the columns of src. It collects them in a tile that
// stays in the first cache, and copies the lines of that.
func (p plane) tiles(dst, src []byte, rows, cols int) {
	var block [tile * tile * 8]byte
	line := tile * p.width
	for c := 0; c < cols; c += tile {
		n := min(tile, cols-c)
		for r := 0; r < rows; r += tile {
			high := min(tile, rows-r)
			at := r*p.fromRow + c*p.fromCol
			if p.width == 2 {
				for j := 0; j < n; j += 4 {
					turn(block[2*j:], line, src[at+j*p.fromCol:], p.fromCol, high)
				}
			} else {
				for j := range n {
					column(block[j*p.width:], line, src[at+j*p.fromCol:], p.width, high)
				}
			}
			for i := range high {
				copy(dst[(r+i)*p.toRow+c*p.width:][:n*p.width], block[i*line:])
			}
		}
	}
}

// column puts the first n elements of src line bytes apart.
func column(dst []byte, line int, src []byte, width, n int) {
	switch src = src[:n*width]; width {
	case 1:
		for i, b := range src {
			dst[i*line] = b
		}
	case 4:
		for i := 0; i < len(src); i += 4 {
			binary.LittleEndian.PutUint32(dst[i/4*line:], binary.LittleEndian.Uint32(src[i:]))
		}
	case 8:
		for i := 0; i < len(src); i += 8 {
			binary.LittleEndian.PutUint64(dst[i/8*line:], binary.LittleEndian.Uint64(src[i:]))
		}
	}
}

// turn makes of four columns of src of 16-bit elements, hop bytes apart, rows of four in
// dst. It turns blocks of 4 by 4 in registers.
func turn(dst []byte, line int, src []byte, hop, rows int) {
	const even, low = 0x0000ffff_0000ffff, 0x00000000_ffffffff
	le := binary.LittleEndian
	col0, col1, col2, col3 := src[:2*rows], src[hop:hop+2*rows], src[2*hop:2*hop+2*rows], src[3*hop:3*hop+2*rows]
	for i := 0; i+8 <= len(col0); i += 8 {
		a, b, c, d := le.Uint64(col0[i:]), le.Uint64(col1[i:]), le.Uint64(col2[i:]), le.Uint64(col3[i:])
		ab02, ab13 := a&even|b&even<<16, a>>16&even|b&^even // columns 0 and 1 of rows 0 and 2, of rows 1 and 3
		cd02, cd13 := c&even|d&even<<16, c>>16&even|d&^even
		out := dst[i/2*line:]
		le.PutUint64(out, ab02&low|cd02<<32)
		le.PutUint64(out[line:], ab13&low|cd13<<32)
		le.PutUint64(out[2*line:], ab02>>32|cd02&^low)
		le.PutUint64(out[3*line:], ab13>>32|cd13&^low)
	}
}
