// Package torch reads and writes torch.save zip archives. It reads with a closed pickle
// machine: it knows the few names that a saved tensor needs, and never imports,
// calls or runs anything else. Tensors alias the input, which may be a mapped file.
// It writes the bytes that torch.save writes.
//
// It does not read TorchScript archives, torch's old non-zip format, quantised,
// complex or 8-bit float tensors, NumPy objects or pickle protocols other than 2,
// and it does not know what the names in a record mean.
//
// It is stricter than torch.load: wrong checksums, duplicate members, bytes before
// or after the archive, and values that contain themselves are refused.
package torch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"

	"hsx/format"
)

// What an archive may ask for. The sizes are far above what a dump needs, and low
// enough that no small file makes its reader work for long.
const (
	maxPickle  = 16 << 20  // bytes of data.pkl
	maxMemo    = 1_000_000 // memo slots
	maxStack   = 100_000   // values and marks on the machine's stack
	maxValues  = 1_000_000 // values the machine makes, and values in the result
	maxNesting = 1000      // containers within containers
	maxString  = 1 << 20   // bytes of one string
	maxTensors = 10_000    // tensors in the result
	maxDims    = 64        // dimensions of a tensor
	maxShare   = 4         // bytes of all tensors, in archive sizes: views may share a storage, not multiply it
)

// Options relax what Decode does; the zero value is the strict default.
type Options struct {
	// SkipCRC leaves the bytes of the storages unread: for looking at the structure only.
	SkipCRC bool
}

// Archive is the content of one torch.save archive.
type Archive struct {
	// Value is what was saved: *format.Record for a dict, []format.Value for a list
	// or a tuple, *format.Tensor for a tensor or a bare storage (1-D), a string for a
	// device ("cuda:1") or a dtype ("torch.bfloat16"), and plain values.
	//
	// A tensor's Name is its path of keys ("hidden_states[2]", "a.b"), its Storage the
	// key of the storage it views. An object that is reached by several paths has the
	// name of the first, and is one object in the result.
	Value format.Value
	// Prefix is the directory that all members share, as a rule the name of the file
	// when it was saved.
	Prefix string
	// Notes are facts worth telling that make the values no less right.
	Notes []string
}

// IsArchive reports whether head, the first bytes of a file, begins a zip archive.
func IsArchive(head []byte) bool { return bytes.HasPrefix(head, []byte("PK\x03\x04")) }

// Decode reads a whole archive. The result aliases data, except for tensors that had
// to be copied: transposed ones, and all of a big-endian archive. Errors are
// [format.DecodeError].
func Decode(data []byte, opt Options) (*Archive, error) {
	if err := checkHead(data); err != nil {
		return nil, err
	}
	dir, err := readDirectory(data)
	if err != nil {
		return nil, err
	}
	a := &Archive{Prefix: dir.prefix}
	big, err := dir.bigEndian()
	if err != nil {
		return nil, err
	}
	if big {
		a.Notes = append(a.Notes, "the storages are big-endian and were swapped, which took a copy")
	}
	if !dir.summed() {
		a.Notes = append(a.Notes, "no CRC in the archive (all 0): damage in transit cannot be seen")
	} else if err := dir.verify(opt.SkipCRC); err != nil {
		return nil, err
	}

	pkl := dir.byName["data.pkl"]
	m := &machine{base: pkl.start, data: pkl.data}
	top, err := m.run()
	if err != nil {
		return nil, err
	}
	switch rest := len(m.data) - m.pos; {
	case m.proto != 2:
		return nil, fail(format.ErrUnsupported, pkl.start, dir.path("data.pkl"), "pickle protocol is %d, want 2, torch.save's default", m.proto)
	case rest != 0:
		return nil, fail(format.ErrCorrupt, pkl.start+int64(m.pos), dir.path("data.pkl"), "%d bytes follow the end of the pickle", rest)
	}
	b := &builder{dir: dir, big: big, maxBytes: maxShare * int64(len(data)), records: map[string]record{}}
	if a.Value, _, err = b.value(top); err != nil {
		return nil, err
	}
	if n := len(m.stack); n > 0 {
		return nil, fail(format.ErrCorrupt, pkl.start, dir.path("data.pkl"), "pickle leaves %d values beside the record, want none", n)
	}
	return a, nil
}

// checkHead explains a file that does not begin with a zip member.
func checkHead(data []byte) error {
	switch {
	case len(data) == 0:
		return fail(format.ErrCorrupt, -1, "", "file is empty")
	case IsArchive(data):
		return nil
	case len(data) < 4 && strings.HasPrefix("PK\x03\x04", string(data)):
		return fail(format.ErrCorrupt, int64(len(data)), "", "file is truncated: it ends after %d bytes, inside the first signature", len(data))
	case data[0] == opProto:
		return CheckBarePickle(data)
	}
	if e, ok := findEnd(data); ok {
		return fail(format.ErrCorrupt, 0, "", "archive does not begin at byte 0: its end record at byte %d belongs to an archive with other bytes before it", e)
	}
	return fail(format.ErrUnsupported, 0, "", "file begins with % x, want the zip signature 50 4b 03 04", data[:min(4, len(data))])
}

// bigEndian reads the byteorder member, which old archives lack: they are
// little-endian. Its value is judged before any checksum, as the plainer message.
func (d *directory) bigEndian() (bool, error) {
	m, ok := d.byName["byteorder"]
	if !ok {
		return false, nil
	}
	switch string(m.data) {
	case "little":
		return false, nil
	case "big":
		return true, nil
	}
	return false, fail(format.ErrCorrupt, m.start, m.name, "member %q is %q, want little or big", m.name, m.data[:min(16, len(m.data))])
}

// summed reports whether the archive has checksums. torch can be told to leave them
// out and then writes 0 for every member, so one 0 among others is damage.
func (d *directory) summed() bool {
	for _, m := range d.members {
		if m.crc != 0 {
			return true
		}
	}
	for _, m := range d.members {
		if len(m.data) > 0 {
			return false
		}
	}
	return true
}

// verify checks the CRC-32 of each member that torch is known to write, the storages
// only when they are to be read.
func (d *directory) verify(skipStorages bool) error {
	for _, m := range d.members {
		local := m.name[len(d.prefix)+1:]
		switch {
		case strings.HasPrefix(local, "data/"):
			if skipStorages {
				continue
			}
		case local == "data.pkl", local == "version", local == "byteorder",
			local == ".format_version", local == ".storage_alignment", strings.HasPrefix(local, ".data/"):
		default:
			continue
		}
		if sum := crc32.ChecksumIEEE(m.data); sum != m.crc {
			return fail(format.ErrCorrupt, m.start, m.name, "member %q has the CRC-32 %08x, want %08x by the central directory", m.name, sum, m.crc)
		}
	}
	return nil
}

// CheckBarePickle explains data that begins with a pickle and has no zip archive
// around it. It always returns an error, a [format.DecodeError]: the first thing the
// closed machine refuses in the first pickle, or else what kind of file this is.
func CheckBarePickle(data []byte) error {
	m := &machine{data: data[:min(len(data), maxPickle)]}
	top, err := m.run()
	if err != nil {
		if e := (*format.DecodeError)(nil); errors.As(err, &e) {
			e.Format = "pickle"
		}
		return err
	}
	msg := "a pickle without a torch archive around it: save the values with torch.save"
	if n, ok := top.(bigInt); ok && n.isLegacyMagic() {
		msg = "torch's old non-zip format, which hsx does not read: load the file and save it again with torch 1.6 or newer"
	}
	return &format.DecodeError{Format: "pickle", Offset: -1, Kind: format.ErrUnsupported, Err: errors.New(msg)}
}

// bigInt is an integer wider than 64 bits, in pickle's two's complement
// little-endian form. No value may be one; it can only be recognised.
type bigInt []byte

// isLegacyMagic reports whether n is 0x1950a86a20f9469cfc6c, which opens torch's
// format from before version 1.6.
func (n bigInt) isLegacyMagic() bool { return string(n) == "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19" }

// parseLong reads pickle's integer form of any length.
func parseLong(b []byte) any {
	if len(b) > 8 {
		return bigInt(b)
	}
	if len(b) == 0 {
		return int64(0)
	}
	var buf [8]byte
	if b[len(b)-1] >= 0x80 {
		binary.LittleEndian.PutUint64(buf[:], math.MaxUint64)
	}
	copy(buf[:], b)
	return int64(binary.LittleEndian.Uint64(buf[:]))
}

// fail makes the one kind of error that this package returns.
func fail(kind error, off int64, name, msg string, args ...any) error {
	return &format.DecodeError{Format: "torch archive", Offset: off, Tensor: name, Kind: kind, Err: fmt.Errorf(msg, args...)}
}
