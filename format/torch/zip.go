package torch

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"hsx/format"
)

// The fixed parts of the zip records, in bytes (PKWARE APPNOTE 4.3).
const (
	localLen   = 30
	centralLen = 46
	endLen     = 22
	end64Len   = 56
	locatorLen = 20
)

// member is one entry of the archive. data lies in the input.
type member struct {
	name   string
	crc    uint32
	flags  uint16
	method uint16
	packed int64 // bytes in the file
	size   int64 // bytes once unpacked
	entry  int64 // offset of the directory entry
	header int64 // offset of the local header
	start  int64 // offset of the data
	data   []byte
}

// directory is the list of members as the central directory tells it, ordered by
// their place in the file. torch's local headers carry no sizes and no sums, so they
// serve only to find where the data begins.
type directory struct {
	prefix  string // without the slash
	members []member
	byName  map[string]*member // by the name after the prefix
}

// path is the full name of a member.
func (d *directory) path(name string) string { return d.prefix + "/" + name }

// readDirectory parses the structure of an archive that fills data exactly.
func readDirectory(data []byte) (*directory, error) {
	e, err := readEnd(data)
	if err != nil {
		return nil, err
	}
	// Each entry takes at least its fixed part, which bounds the count by real bytes.
	if e.count > e.size/centralLen {
		return nil, fail(format.ErrCorrupt, e.at, "", "end record counts %d members, more than the %d bytes of the central directory hold", e.count, e.size)
	}
	d := &directory{members: make([]member, e.count), byName: make(map[string]*member, e.count)}
	pos := e.start
	for i := range d.members {
		n, err := d.members[i].parseCentral(data[pos:e.at], pos)
		if err != nil {
			return nil, err
		}
		pos += n
	}
	if pos != e.at {
		return nil, fail(format.ErrCorrupt, pos, "", "central directory has %d bytes after its %d members", e.at-pos, e.count)
	}
	slices.SortFunc(d.members, func(a, b member) int { return cmp.Compare(a.header, b.header) })
	if err := d.place(data, e.start); err != nil {
		return nil, err
	}
	return d, d.index()
}

// end is what the end record says of the central directory.
type end struct {
	start, size int64 // of the central directory
	count       int64
	at          int64 // where the central directory has to end
}

// readEnd reads the end record, which has to be the last bytes of the file. A cut
// file has none; it is told from one with foreign bytes behind it by looking for the
// record further in front.
func readEnd(data []byte) (end, error) {
	n := int64(len(data))
	at, ok := findEnd(data)
	if !ok {
		return end{}, fail(format.ErrCorrupt, n, "", "file is truncated: it ends after %d bytes without the end record of a zip archive", n)
	}
	if at+endLen != n {
		return end{}, fail(format.ErrCorrupt, at+endLen, "", "%d bytes follow the end of the archive", n-at-endLen)
	}
	b := data[at:]
	e := end{
		count: int64(le16(b[10:])), size: int64(le32(b[12:])), start: int64(le32(b[16:])),
		at: at,
	}
	disks := le16(b[4:]) != 0 || le16(b[6:]) != 0 || le16(b[8:]) != le16(b[10:])
	if e.count == math.MaxUint16 || e.size == math.MaxUint32 || e.start == math.MaxUint32 || e.start+e.size != at {
		if e64, ok := readEnd64(data[:at]); ok {
			e, disks = e64, false
		}
	}
	if disks {
		return end{}, fail(format.ErrUnsupported, at, "", "archive is one part of several, want one file")
	}
	if e.size > e.at || e.start != e.at-e.size {
		return end{}, fail(format.ErrCorrupt, at, "", "central directory of %d bytes at byte %d does not end at byte %d, where the end record begins", e.size, e.start, e.at)
	}
	return e, nil
}

// readEnd64 reads the zip64 end record and its locator, the last bytes of data.
func readEnd64(data []byte) (end, bool) {
	at := int64(len(data)) - locatorLen - end64Len
	if at < 0 {
		return end{}, false
	}
	b, loc := data[at:at+end64Len], data[at+end64Len:]
	ok := bytes.HasPrefix(loc, []byte("PK\x06\x07")) && le64(loc[8:]) == at && le32(loc[4:]) == 0 && le32(loc[16:]) <= 1 &&
		bytes.HasPrefix(b, []byte("PK\x06\x06")) && le64(b[4:]) == end64Len-12 &&
		le32(b[16:]) == 0 && le32(b[20:]) == 0 && le64(b[24:]) == le64(b[32:])
	e := end{count: le64(b[32:]), size: le64(b[40:]), start: le64(b[48:]), at: at}
	return e, ok && e.count >= 0 && e.size >= 0 && e.start >= 0
}

// findEnd looks for the end record: at the very end, or else the last one in the last
// 64 KiB that fits the directory before it, so that a stray signature in the data of
// a cut file is not taken for one. torch writes no archive comment, so any bytes
// behind the record are foreign.
func findEnd(data []byte) (int64, bool) {
	sig := []byte("PK\x05\x06")
	last := len(data) - endLen
	if last < 0 {
		return 0, false
	}
	if bytes.HasPrefix(data[last:], sig) && le16(data[last+20:]) == 0 {
		return int64(last), true
	}
	low := max(0, last-1<<16)
	for win := data[low : last+len(sig)-1]; ; {
		i := bytes.LastIndex(win, sig)
		if i < 0 {
			return 0, false
		}
		at := low + i
		size, start := int64(le32(data[at+12:])), int64(le32(data[at+16:]))
		if size >= centralLen && size <= int64(at) && (start+size <= int64(at) || start == math.MaxUint32) &&
			(bytes.HasPrefix(data[int64(at)-size:], []byte("PK\x01\x02")) || bytes.HasSuffix(data[:max(0, at-16)], []byte("PK\x06\x07"))) {
			return int64(at), true
		}
		win = win[:i]
	}
}

// parseCentral reads one entry at the start of b and returns its length.
func (m *member) parseCentral(b []byte, at int64) (int64, error) {
	if len(b) < centralLen || !bytes.HasPrefix(b, []byte("PK\x01\x02")) {
		return 0, fail(format.ErrCorrupt, at, "", "central directory has no entry where one is due")
	}
	nameLen, extraLen, commentLen := int(le16(b[28:])), int(le16(b[30:])), int(le16(b[32:]))
	n := centralLen + nameLen + extraLen + commentLen
	if n > len(b) {
		return 0, fail(format.ErrCorrupt, at, "", "directory entry takes %d bytes, %d are there", n, len(b))
	}
	*m = member{
		name:  string(b[centralLen : centralLen+nameLen]),
		entry: at,
		flags: le16(b[8:]), method: le16(b[10:]), crc: le32(b[16:]),
		packed: int64(le32(b[20:])), size: int64(le32(b[24:])), header: int64(le32(b[42:])),
	}
	if !m.widen(b[centralLen+nameLen : centralLen+nameLen+extraLen]) {
		return 0, fail(format.ErrCorrupt, at, m.name, "member %q has no zip64 field for its sizes", m.name)
	}
	return int64(n), nil
}

// widen replaces the saturated fields by those of the zip64 extra field, which has
// only them, in this order.
func (m *member) widen(extra []byte) bool {
	var wide []*int64
	for _, f := range []*int64{&m.size, &m.packed, &m.header} {
		if *f == math.MaxUint32 {
			wide = append(wide, f)
		}
	}
	for len(wide) > 0 && len(extra) >= 4 {
		id, n := le16(extra), int(le16(extra[2:]))
		if extra = extra[4:]; n > len(extra) {
			return false
		}
		if id == 1 {
			if n < 8*len(wide) {
				return false
			}
			for i, f := range wide {
				if *f = le64(extra[8*i:]); *f < 0 {
					return false
				}
			}
			return true
		}
		extra = extra[n:]
	}
	return len(wide) == 0
}

// place finds each member's data by its local header and checks that the members
// follow each other from byte 0 without overlap and end before limit, where the
// central directory begins.
func (d *directory) place(data []byte, limit int64) error {
	free := int64(0) // where the previous member ended
	for i := range d.members {
		m := &d.members[i]
		switch {
		case i == 0 && m.header != 0:
			return fail(format.ErrCorrupt, 0, m.name, "first member %q begins at byte %d, want 0", m.name, m.header)
		case m.header < free:
			return fail(format.ErrCorrupt, m.header, m.name, "member %q begins at byte %d, inside %q, which ends at byte %d", m.name, m.header, d.members[i-1].name, free)
		case m.header > limit-localLen:
			return fail(format.ErrCorrupt, m.entry, m.name, "member %q begins at byte %d, want before the directory at byte %d", m.name, m.header, limit)
		}
		b := data[m.header:limit]
		if !bytes.HasPrefix(b, []byte("PK\x03\x04")) {
			return fail(format.ErrCorrupt, m.header, m.name, "member %q has no local header at byte %d", m.name, m.header)
		}
		nameLen := int64(le16(b[26:]))
		head := localLen + nameLen + int64(le16(b[28:]))
		if head > int64(len(b)) || m.packed > int64(len(b))-head {
			return fail(format.ErrCorrupt, m.header, m.name, "member %q of %d bytes runs past the directory at byte %d", m.name, m.packed, limit)
		}
		if name := b[localLen : localLen+nameLen]; string(name) != m.name {
			return fail(format.ErrCorrupt, m.header, m.name, "member %q is called %q by its local header", m.name, name[:min(256, len(name))])
		}
		m.start = m.header + head
		m.data = b[head : head+m.packed : head+m.packed]
		free = m.start + m.packed
	}
	return nil
}

// index checks the members against what torch writes, and sorts them by name.
func (d *directory) index() error {
	if !slices.ContainsFunc(d.members, func(m member) bool { return m.name == "data.pkl" || strings.HasSuffix(m.name, "/data.pkl") }) {
		return fail(format.ErrUnsupported, -1, "", "the zip archive has no data.pkl among its %d members: it is not a torch archive", len(d.members))
	}
	for i := range d.members {
		m := &d.members[i]
		if !validName(m.name) {
			return fail(format.ErrCorrupt, m.header, m.name, "member name %q is not a plain relative path", m.name)
		}
		prefix, name, ok := strings.Cut(m.name, "/")
		switch {
		case !ok:
			return fail(format.ErrCorrupt, m.header, m.name, "member %q is in no directory, want one that all members share", m.name)
		case i == 0:
			d.prefix = prefix
		case prefix != d.prefix:
			return fail(format.ErrCorrupt, m.header, m.name, "member %q is outside the directory %q of the other members", m.name, d.prefix)
		}
		switch {
		case m.flags&(1|1<<6|1<<13) != 0:
			return fail(format.ErrUnsupported, m.header, m.name, "member %q is encrypted", m.name)
		case m.method != 0 || m.packed != m.size:
			return fail(format.ErrUnsupported, m.header, m.name, "member %q is compressed (method %d, %d bytes for %d), want stored", m.name, m.method, m.packed, m.size)
		case name == "constants.pkl" || strings.HasPrefix(name, "code/"):
			return fail(format.ErrUnsupported, m.header, m.name, "member %q makes this a TorchScript archive, which holds a program: save the tensors with torch.save", m.name)
		case d.byName[name] != nil:
			return fail(format.ErrCorrupt, m.header, m.name, "member %q is there twice, at bytes %d and %d", m.name, d.byName[name].header, m.header)
		}
		d.byName[name] = m
	}
	if d.byName["data.pkl"] == nil {
		return fail(format.ErrCorrupt, -1, d.path("data.pkl"), "member %q is missing", d.path("data.pkl"))
	}
	return nil
}

// validName refuses names that leave their directory on some system. A trailing
// slash, the mark of a directory, is plain.
func validName(name string) bool {
	if !utf8.ValidString(name) || strings.ContainsAny(name, "\\\x00") {
		return false
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(name, "/"), "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

func le16(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }
func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func le64(b []byte) int64  { return int64(binary.LittleEndian.Uint64(b)) }
