package torch

import "encoding/binary"

// tile is the rows and columns that are turned together: a line of memory is then
// brought into the cache once, and used whole.
const tile = 32

// gather copies a view of n bytes into row-major order. Where one element of the
// result is far from the next in src, those of another dimension may be near: the last
// dimension and that one are copied together.
func gather(src []byte, size, stride []int64, width int, n int64) []byte {
	out := make([]byte, n)
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
	if p.width == 2 && p.fromRow == 2 {
		rows, cols = p.rows&^3, p.cols&^3
		p.halves(dst, src, rows, cols)
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

// halves copies the first rows and cols, multiples of 4, of elements of two bytes that
// are neighbours in the columns of src. It turns blocks of 4 by 4 in registers, collects
// them in a tile that stays in the first cache, and copies the lines of that.
func (p plane) halves(dst, src []byte, rows, cols int) {
	const line = 2 * tile
	var block [tile * line]byte
	for c := 0; c < cols; c += tile {
		n := min(tile, cols-c)
		for r := 0; r < rows; r += tile {
			high := min(tile, rows-r)
			for j := 0; j < n; j += 4 {
				at := 2*r + (c+j)*p.fromCol
				turn(block[2*j:], line, src[at:], p.fromCol, high)
			}
			for i := range high {
				copy(dst[(r+i)*p.toRow+2*c:][:2*n], block[i*line:])
			}
		}
	}
}

// turn makes of four columns of src, hop bytes apart, rows of four elements in dst.
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
