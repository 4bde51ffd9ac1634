package torch_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
)

// file is one member of an archive that a test builds.
type file struct {
	name   string
	data   []byte
	crc    uint32 // added to the right one
	flags  uint16
	method uint16
	size   int // added to the right one in the unpacked size
	header int // added to the right header offset
	local  string
	raw    []byte // extra field of the directory entry
}

// layout is how an archive is laid out.
type layout struct {
	descriptors bool // as torch writes: sizes and sums behind the data only
	align       bool // data at multiples of 64, padded by an FB extra field
	zip64       bool // every size and offset in zip64 form
	noCRC       bool
	entries     int // added to the right count
	prefix      string
}

// build writes an archive. It can write wrong ones, which archive/zip cannot.
func (l layout) build(files ...file) []byte {
	var out, dir []byte
	for _, f := range files {
		name, at := l.prefix+f.name, len(out)
		crc := crc32.ChecksumIEEE(f.data) + f.crc
		if l.noCRC {
			crc = 0
		}
		local := name
		if f.local != "" {
			local = f.local
		}
		var extra []byte
		if l.zip64 { // as torch: zip64 field with zeros for fields that are 0, not saturated
			extra = append(extra, 1, 0, 16, 0)
			extra = append(extra, make([]byte, 16)...)
		}
		if l.align {
			pad := 64 - (at+30+len(local)+len(extra)+4)%64
			extra = append(extra, 'F', 'B', byte(pad), 0)
			extra = append(extra, strings.Repeat("Z", pad)...)
		}
		sum, size := crc, uint32(len(f.data))
		if l.descriptors || l.zip64 {
			sum, size = 0, 0
		}
		out = append(out, "PK\x03\x04\x00\x00"...)
		out = binary.LittleEndian.AppendUint16(out, f.flags)
		out = binary.LittleEndian.AppendUint16(out, f.method)
		out = binary.LittleEndian.AppendUint32(out, 0)
		out = binary.LittleEndian.AppendUint32(out, sum)
		out = binary.LittleEndian.AppendUint32(out, size)
		out = binary.LittleEndian.AppendUint32(out, size)
		out = binary.LittleEndian.AppendUint16(out, uint16(len(local)))
		out = binary.LittleEndian.AppendUint16(out, uint16(len(extra)))
		out = append(append(append(out, local...), extra...), f.data...)
		if l.descriptors && len(f.data) > 0 {
			out = append(out, "PK\x07\x08"...)
			out = binary.LittleEndian.AppendUint32(out, crc)
			out = binary.LittleEndian.AppendUint32(out, uint32(len(f.data)))
			out = binary.LittleEndian.AppendUint32(out, uint32(len(f.data)))
		}

		ext := f.raw
		packed, unpacked, header := uint32(len(f.data)), uint32(len(f.data)+f.size), uint32(at+f.header)
		if l.zip64 {
			ext = append(ext, 1, 0, 24, 0)
			ext = binary.LittleEndian.AppendUint64(ext, uint64(unpacked))
			ext = binary.LittleEndian.AppendUint64(ext, uint64(packed))
			ext = binary.LittleEndian.AppendUint64(ext, uint64(header))
			packed, unpacked, header = 1<<32-1, 1<<32-1, 1<<32-1
		}
		dir = append(dir, "PK\x01\x02\x00\x00\x00\x00"...)
		dir = binary.LittleEndian.AppendUint16(dir, f.flags)
		dir = binary.LittleEndian.AppendUint16(dir, f.method)
		dir = binary.LittleEndian.AppendUint32(dir, 0)
		dir = binary.LittleEndian.AppendUint32(dir, crc)
		dir = binary.LittleEndian.AppendUint32(dir, packed)
		dir = binary.LittleEndian.AppendUint32(dir, unpacked)
		dir = binary.LittleEndian.AppendUint16(dir, uint16(len(name)))
		dir = binary.LittleEndian.AppendUint16(dir, uint16(len(ext)))
		dir = append(dir, make([]byte, 10)...)
		dir = binary.LittleEndian.AppendUint32(dir, header)
		dir = append(append(dir, name...), ext...)
	}
	start, count := len(out), len(files)+l.entries
	out = append(out, dir...)
	if l.zip64 {
		at := len(out)
		out = append(out, "PK\x06\x06"...)
		out = binary.LittleEndian.AppendUint64(out, 44)
		out = append(out, make([]byte, 12)...)
		out = binary.LittleEndian.AppendUint64(out, uint64(count))
		out = binary.LittleEndian.AppendUint64(out, uint64(count))
		out = binary.LittleEndian.AppendUint64(out, uint64(len(dir)))
		out = binary.LittleEndian.AppendUint64(out, uint64(start))
		out = append(out, "PK\x06\x07\x00\x00\x00\x00"...)
		out = binary.LittleEndian.AppendUint64(out, uint64(at))
		out = binary.LittleEndian.AppendUint32(out, 1)
		start, count = 1<<32-1, 1<<16-1
	}
	out = append(out, "PK\x05\x06\x00\x00\x00\x00"...)
	out = binary.LittleEndian.AppendUint16(out, uint16(count))
	out = binary.LittleEndian.AppendUint16(out, uint16(count))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(dir)))
	out = binary.LittleEndian.AppendUint32(out, uint32(start))
	return binary.LittleEndian.AppendUint16(out, 0)
}

// archive is a plain archive of a pickle and storages 0, 1, ….
func archive(pickle string, storages ...[]byte) []byte {
	return layout{prefix: "x/"}.build(members(pickle, storages...)...)
}

func members(pickle string, storages ...[]byte) []file {
	files := []file{{name: "data.pkl", data: []byte(pickle)}}
	for i, s := range storages {
		files = append(files, file{name: fmt.Sprintf("data/%d", i), data: s})
	}
	return append(files, file{name: "version", data: []byte("3\n")})
}

// The pickles of tests are put together from these pieces.

func str(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}
func num(n int64) string {
	return "\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}
func tuple(parts ...string) string {
	return "(" + strings.Join(parts, "") + "t"
}

func nums(ns []int64) string {
	var s strings.Builder
	for _, n := range ns {
		s.WriteString(num(n))
	}
	return tuple(s.String())
}

func persID(class, key string, elems int64) string {
	return tuple(str("storage"), "c"+class+"\n", str(key), str("cpu"), num(elems)) + "Q"
}

const (
	hooks     = "ccollections\nOrderedDict\n)R"
	rebuildV2 = "ctorch._utils\n_rebuild_tensor_v2\n"
	rebuildV3 = "ctorch._utils\n_rebuild_tensor_v3\n"
)

func tensor(class, key string, elems, offset int64, size, stride []int64) string {
	return rebuildV2 + tuple(persID(class, key, elems), num(offset), nums(size), nums(stride), "\x89", hooks) + "R"
}

// dict pickles alternating keys, plain, and values, pickled.
func dict(kv ...string) string {
	var s strings.Builder
	for i := 0; i < len(kv); i += 2 {
		s.WriteString(str(kv[i]) + kv[i+1])
	}
	return "\x80\x02}(" + s.String() + "u."
}
