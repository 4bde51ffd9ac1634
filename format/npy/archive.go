package npy

import (
	"archive/zip"
	"bytes"
	"cmp"
	"compress/flate"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strings"
	"unicode"

	"hsx/format"
)

const (
	localMagic    = "PK\x03\x04"
	endMagic      = "PK\x05\x06"
	endBytes      = 22   // of the end record without its comment
	maxName       = 4096 // bytes; names are repeated in messages and in rejected.jsonl
	deflateRatio  = 1032 // the most that deflate can make of one byte
	inflateFactor = 64   // together the members may grow to this many times the archive …
	inflateSlack  = 1 << 20
)

// member is one array of an archive, still packed.
type member struct {
	file       *zip.File
	key        string
	begin, end int // of the packed bytes in the archive
}

// DecodeArchive reads a .npz archive. The record holds a *format.Tensor for each
// member, in the order of the data, under the member's name without ".npy".
//
// Tensors of stored members alias data. Deflated ones are unpacked to no more than
// the directory declares, and all together to at most 64 times the archive and 1 MiB.
// Checksums are verified. Members that are not arrays, that repeat or overlap, are
// encrypted, or whose names would leave a directory, make the archive refused.
//
// The error is a *[format.DecodeError] that names the member; its offset is in the
// archive: in a deflated member, where that begins.
func DecodeArchive(data []byte) (*format.Record, error) {
	members, err := listMembers(data)
	if err != nil {
		return nil, err
	}
	z := inflater{left: inflateFactor*len(data) + inflateSlack}
	rec := &format.Record{Fields: make([]format.Field, len(members))}
	for i, m := range members {
		raw, err := m.unpack(data, &z)
		if err != nil {
			return nil, err
		}
		t, err := Decode(raw)
		if err != nil {
			return nil, m.inside(err)
		}
		t.Name = m.key
		rec.Fields[i] = format.Field{Key: m.key, Value: t}
	}
	return rec, nil
}

// listMembers reads the directory and sorts it by the place of the data.
func listMembers(data []byte) ([]member, error) {
	if len(data) == 0 {
		return nil, archiveFault(format.ErrCorrupt, 0, "", "file is empty")
	}
	if !bytes.HasPrefix(data, []byte(localMagic)) && !bytes.HasPrefix(data, []byte(endMagic)) {
		return nil, archiveFault(format.ErrUnsupported, 0, "", "file begins with %q, want a zip member", data[:min(len(data), 4)])
	}
	zr, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, archiveFault(format.ErrCorrupt, len(data), "", "zip directory is not readable, the file may be truncated: %w", err)
	}
	if end := len(data) - endBytes - len(zr.Comment); end < 0 || !bytes.HasPrefix(data[end:], []byte(endMagic)) {
		return nil, archiveFault(format.ErrCorrupt, len(data), "", "zip directory is followed by trailing bytes")
	}
	members := make([]member, 0, len(zr.File))
	seen := make(map[string]bool, len(zr.File))
	for _, f := range zr.File {
		m, err := newMember(f, len(data))
		if err != nil {
			return nil, err
		}
		if seen[m.key] {
			return nil, archiveFault(format.ErrCorrupt, m.begin, m.key, "member %q is there twice", f.Name)
		}
		seen[m.key] = true
		members = append(members, m)
	}
	slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.begin, b.begin) })
	for i := 1; i < len(members); i++ {
		if prev, m := members[i-1], members[i]; m.begin < prev.end {
			return nil, archiveFault(format.ErrCorrupt, m.begin, m.key, "member %q overlaps %q, which ends at byte %d", m.file.Name, prev.file.Name, prev.end)
		}
	}
	return members, nil
}

// newMember checks what the directory says of one member of an archive of size bytes.
func newMember(f *zip.File, size int) (member, error) {
	if len(f.Name) > maxName {
		return member{}, archiveFault(format.ErrLimit, -1, "", "zip directory has a name of %d bytes, want at most %d", len(f.Name), maxName)
	}
	if !fs.ValidPath(f.Name) || strings.ContainsAny(f.Name, `\:`) || strings.ContainsFunc(f.Name, unicode.IsControl) {
		return member{}, archiveFault(format.ErrCorrupt, -1, f.Name, "member %q has a name that is no plain relative path", f.Name)
	}
	key, ok := strings.CutSuffix(f.Name, ".npy")
	if !ok || key == "" {
		return member{}, archiveFault(format.ErrUnsupported, -1, f.Name, "member %q is no array, want names that end in .npy", f.Name)
	}
	if f.Flags&1 != 0 {
		return member{}, archiveFault(format.ErrUnsupported, -1, key, "member %q is encrypted", f.Name)
	}
	begin, err := f.DataOffset()
	if err != nil {
		return member{}, archiveFault(format.ErrCorrupt, -1, key, "member %q is not where the zip directory says: %w", f.Name, err)
	}
	if begin < 0 || begin > int64(size) || f.CompressedSize64 > uint64(int64(size)-begin) {
		return member{}, archiveFault(format.ErrCorrupt, size, key, "member %q has %d bytes from byte %d on, and the file ends at %d: it is truncated", f.Name, f.CompressedSize64, begin, size)
	}
	return member{file: f, key: key, begin: int(begin), end: int(begin) + int(f.CompressedSize64)}, nil
}

// unpack gives the bytes of the .npy file, a part of data when they are stored.
func (m member) unpack(data []byte, z *inflater) ([]byte, error) {
	raw, declared := data[m.begin:m.end:m.end], m.file.UncompressedSize64
	switch m.file.Method {
	case zip.Store:
		if declared != uint64(len(raw)) {
			return nil, m.fault(format.ErrCorrupt, "is stored in %d bytes, and the zip directory declares %d", len(raw), declared)
		}
	case zip.Deflate:
		if declared > deflateRatio*uint64(len(raw)) {
			return nil, m.fault(format.ErrCorrupt, "declares %d bytes, more than deflate can make of its %d", declared, len(raw))
		}
		if declared > uint64(z.left) {
			return nil, m.fault(format.ErrLimit, "declares %d bytes, want at most %d: the archive may grow to %d times its size", declared, z.left, inflateFactor)
		}
		var err error
		if raw, err = z.inflate(raw, int(declared)); err != nil {
			return nil, m.fault(format.ErrCorrupt, "is not readable: %w", err)
		}
	default:
		return nil, m.fault(format.ErrUnsupported, "has compression method %d, want 0 (stored) or 8 (deflated)", m.file.Method)
	}
	if sum := crc32.ChecksumIEEE(raw); sum != m.file.CRC32 {
		return nil, m.fault(format.ErrCorrupt, "has checksum %08x, and the zip directory declares %08x", sum, m.file.CRC32)
	}
	return raw, nil
}

// inside moves an error of Decode from the member to the archive.
func (m member) inside(err error) error {
	de, ok := errors.AsType[*format.DecodeError](err)
	if !ok {
		return m.fault(format.ErrCorrupt, "is not readable: %w", err)
	}
	at := m.begin
	if m.file.Method == zip.Store {
		at += int(de.Offset)
	}
	return archiveFault(de.Kind, at, m.key, "member %q: %w", m.file.Name, de.Err)
}

func (m member) fault(kind error, msg string, args ...any) error {
	return archiveFault(kind, m.begin, m.key, "member %q %w", m.file.Name, fmt.Errorf(msg, args...))
}

func archiveFault(kind error, at int, key, msg string, args ...any) error {
	return &format.DecodeError{Format: "npz", Offset: int64(at), Tensor: key, Kind: kind, Err: fmt.Errorf(msg, args...)}
}

// inflater unpacks the members of one archive. It keeps its window between them: an
// archive of many small members would otherwise cost far more than its size.
type inflater struct {
	left  int // bytes that may still come out
	flate io.ReadCloser
}

// inflate wants exactly size bytes out of all of packed. The caller has checked size
// against the packed length and against left.
func (z *inflater) inflate(packed []byte, size int) ([]byte, error) {
	src := bytes.NewReader(packed)
	if z.flate == nil {
		z.flate = flate.NewReader(src)
	} else if err := z.flate.(flate.Resetter).Reset(src, nil); err != nil {
		return nil, err
	}
	z.left -= size
	out := make([]byte, size)
	if n, err := io.ReadFull(z.flate, out); err != nil {
		return nil, fmt.Errorf("deflate stream stops after %d bytes of %d: %w", n, size, err)
	}
	if n, err := io.ReadFull(z.flate, make([]byte, 1)); n > 0 {
		return nil, fmt.Errorf("deflate stream goes on after the %d bytes that the zip directory declares", size)
	} else if err != io.EOF {
		return nil, fmt.Errorf("deflate stream has no end: %w", err)
	}
	if src.Len() > 0 {
		return nil, fmt.Errorf("deflate stream ends %d bytes before the member does", src.Len())
	}
	return out, nil
}
