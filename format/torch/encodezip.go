package torch

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strings"
)

const (
	alignment = 64        // of the data of each member, in bytes from the start of the file
	chunkLen  = 256 << 10 // bytes that are summed and then written, still in the cache
)

// zipWriter writes stored members in the layout of torch, field for field: sizes and sums
// follow the data, and the data is aligned by an extra field of the local header. A reader
// that finds .format_version in an archive may work out where the data of each storage
// lies from the sizes alone, so nothing here is free to differ.
type zipWriter struct {
	w      *bufio.Writer
	prefix string // with the slash
	at     int64  // bytes written so far
	dir    []byte // the central directory so far
	count  uint64 // of members
	err    error  // the first, which ends the writing
}

func newZipWriter(w io.Writer, prefix string) *zipWriter {
	return &zipWriter{w: bufio.NewWriter(w), prefix: prefix + "/"}
}

func (z *zipWriter) add(name string, data []byte) {
	name = z.prefix + name
	m := member{header: z.at, size: int64(len(data)), flags: 1 << 11} // names are UTF-8
	if m.size > 0 {
		m.flags |= 1 << 3 // a descriptor follows
	}
	wide := m.wide()
	// What the local header says of the sizes in zip64 form is as odd as torch makes it:
	// the stored size is 0, and the offset of the header is there too.
	local := slices.Clone(wide)
	if m.size >= math.MaxUint32 {
		clear(local[12:20])
	}
	pad := -(z.at + localLen + int64(len(name)+len(local)) + 4) & (alignment - 1)
	local = append(local, 'F', 'B', byte(pad), 0)
	local = append(local, strings.Repeat("Z", int(pad))...)

	b := []byte("PK\x03\x04\x00\x00")
	b = put16(b, m.flags)
	b = append(b, make([]byte, 18)...) // method, time, date, sum, sizes
	b = put16(b, uint16(len(name)))
	b = put16(b, uint16(len(local)))
	z.write(append(append(b, name...), local...))

	for chunk := range slices.Chunk(data, chunkLen) {
		if z.err != nil {
			return
		}
		m.crc = crc32.Update(m.crc, crc32.IEEETable, chunk)
		z.write(chunk)
	}
	if m.size > 0 {
		b = put32([]byte("PK\x07\x08"), m.crc)
		if wide == nil {
			b = put32(put32(b, uint32(m.size)), uint32(m.size))
		} else {
			b = put64(put64(b, uint64(m.size)), uint64(m.size))
		}
		z.write(b)
	}

	z.count++
	z.dir = append(z.dir, "PK\x01\x02\x00\x00\x00\x00"...)
	z.dir = put16(z.dir, m.flags)
	z.dir = append(z.dir, make([]byte, 6)...) // method, time, date
	z.dir = put32(z.dir, m.crc)
	z.dir = put32(put32(z.dir, narrow(m.size)), narrow(m.size))
	z.dir = put16(z.dir, uint16(len(name)))
	z.dir = put16(z.dir, uint16(len(wide)))
	z.dir = append(z.dir, make([]byte, 10)...) // comment, disk, attributes
	z.dir = put32(z.dir, narrow(m.header))
	z.dir = append(append(z.dir, name...), wide...)
}

// close writes the central directory and the ends of it, the zip64 one always.
func (z *zipWriter) close() error {
	start, size := z.at, int64(len(z.dir))
	b := put64([]byte("PK\x06\x06"), end64Len-12)
	b = append(b, 0x1e, 3, 45, 0) // made on Unix, needs zip64
	b = put64(put64(append(b, make([]byte, 8)...), z.count), z.count)
	b = put64(put64(b, uint64(size)), uint64(start))
	b = append(b, "PK\x06\x07\x00\x00\x00\x00"...)
	b = put32(put64(b, uint64(start+size)), 1)
	b = append(b, "PK\x05\x06\x00\x00\x00\x00"...)
	count := uint16(z.count) // maxTensors and a few
	b = put16(put16(b, count), count)
	b = put32(put32(b, narrow(size)), narrow(start))
	z.write(z.dir)
	z.write(append(b, 0, 0))
	if z.err != nil {
		return z.err
	}
	return z.w.Flush()
}

func (z *zipWriter) write(b []byte) {
	if z.err == nil {
		_, z.err = z.w.Write(b)
	}
	z.at += int64(len(b))
}

// wide is the zip64 field of a directory entry, nil when there is no need of one.
func (m *member) wide() []byte {
	var b []byte
	if m.size >= math.MaxUint32 {
		b = put64(put64(b, uint64(m.size)), uint64(m.size))
	}
	if m.header >= math.MaxUint32 {
		b = put64(b, uint64(m.header))
	}
	if b == nil {
		return nil
	}
	return append([]byte{1, 0, byte(len(b)), 0}, b...)
}

// narrow is what a field of 32 bits says of a number that may have its place elsewhere.
func narrow(n int64) uint32 { return uint32(min(n, math.MaxUint32)) }

func put16(b []byte, n uint16) []byte { return binary.LittleEndian.AppendUint16(b, n) }
func put32(b []byte, n uint32) []byte { return binary.LittleEndian.AppendUint32(b, n) }
func put64(b []byte, n uint64) []byte { return binary.LittleEndian.AppendUint64(b, n) }
