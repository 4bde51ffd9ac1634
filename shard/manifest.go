package shard

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"hsx/format"
)

// The files of a dataset, relative to its directory.
const (
	manifestName = "manifest.json"
	shardsDir    = "shards"
	inputsName   = "inputs.jsonl"
	rejectedName = "rejected.jsonl"
	lockName     = "lock"
)

// Version is the newest dataset format that this package reads. It writes the oldest
// one that has what a dataset needs, so that older readers go on reading.
const Version = 2

const digestSize = 16

// Digest is an XXH3-128 in its canonical (big-endian) byte order.
type Digest [digestSize]byte

// MarshalText writes 32 hexadecimal digits.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText reads 32 hexadecimal digits.
func (d *Digest) UnmarshalText(b []byte) error {
	if len(b) == 2*digestSize { // hex.Decode panics when there are more
		if _, err := hex.Decode(d[:], b); err == nil {
			return nil
		}
	}
	return fmt.Errorf("digest %q is not %d hexadecimal digits", b, 2*digestSize)
}

// String is the hexadecimal form, as xxhsum -H2 prints it.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Manifest is the content of manifest.json. It grows with shards, never with samples.
type Manifest struct {
	Format    string `json:"format"` // "hsx"
	Version   int    `json:"version"`
	WrittenBy string `json:"written_by"`
	format.Origin
	HiddenSize int         `json:"hidden_size"`
	States     []stateJSON `json:"states"`
	Rows       int64       `json:"rows"`
	Tokens     int64       `json:"tokens"`
	Inputs     Lines       `json:"inputs"`
	Rejected   Lines       `json:"rejected"`
	Partition  *Partition  `json:"partition,omitempty"` // nil: the dataset is no part
	Shards     []Info      `json:"shards"`
}

// stateJSON is a format.State as the manifest writes it.
type stateJSON struct {
	Column string       `json:"column"`
	Layer  *int         `json:"layer"` // null: unknown, or the final
	Block  *int         `json:"block,omitempty"`
	Norm   *format.Norm `json:"norm,omitempty"`
	DType  format.DType `json:"dtype"`
}

// Lines is the part of a .jsonl file that belongs to the dataset.
type Lines struct {
	Lines int64  `json:"lines"`
	Bytes int64  `json:"bytes"`
	XXH3  Digest `json:"xxh3"`
	Parts []Part `json:"parts,omitempty"` // the objects that it lies in, in a store
}

// Part is one of the objects that the lines of a journal lie in, one after the other.
type Part struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Info is one shard.
type Info struct {
	Name         string        `json:"name"`
	Bytes        int64         `json:"bytes"`
	Rows         int64         `json:"rows"`
	Tokens       int64         `json:"tokens"`
	Encoding     string        `json:"encoding,omitempty"` // "" or EncodingSplit
	LargestBatch int64         `json:"largest_batch"`      // bytes of the longest record batch
	XXH3         Digest        `json:"xxh3"`               // of the file
	Head         Digest        `json:"head"`               // of the metadata of its Arrow messages, in file order
	Index        Digest        `json:"index"`              // of the columns that are not states, see hashIndex
	Fingerprint  []Fingerprint `json:"fingerprint"`        // one per state, in their order
}

// Layout is the layout of every sample.
func (m *Manifest) Layout() format.Layout {
	l := format.Layout{HiddenSize: m.HiddenSize}
	for _, s := range m.States {
		l.States = append(l.States, s.state())
	}
	return l
}

func (m *Manifest) setLayout(l format.Layout) {
	m.HiddenSize, m.States = l.HiddenSize, []stateJSON{}
	for _, s := range l.States {
		j := stateJSON{Column: s.Column(), DType: s.DType}
		switch s.Role {
		case format.RoleLayer:
			k := int(s.Layer)
			j.Layer = &k
		case format.RoleBlock:
			j.Block = &s.Block
		case format.RoleFinal:
			j.Norm = &s.Norm
		}
		m.States = append(m.States, j)
	}
}

func (j stateJSON) state() format.State {
	s := format.State{DType: j.DType}
	switch {
	case j.Norm != nil:
		s.Role, s.Norm = format.RoleFinal, *j.Norm
	case j.Block != nil:
		s.Role, s.Block = format.RoleBlock, *j.Block
	case j.Layer != nil:
		s.Layer = format.Layer(*j.Layer)
	}
	return s
}

// setShards gives the manifest its shards, and what follows from them.
func (m *Manifest) setShards(shards []Info) {
	m.Shards, m.Version, m.Rows, m.Tokens = shards, 1, 0, 0
	for i, s := range shards {
		if s.Name != shardName(i) || s.Encoding != "" {
			m.Version = 2
		}
		m.Rows += s.Rows
		m.Tokens += s.Tokens
	}
}

// nextName is a name for one more shard: the next number after all of those that are
// there, which need not be their count once shards were joined.
func (m *Manifest) nextName() string {
	next := 0
	for _, s := range m.Shards {
		next = max(next, shardNumber(s.Name)+1)
	}
	return shardName(next)
}

// The manifest's last member is the XXH3-128 of all bytes before it, so that no
// flipped bit in a layer number or a norm state can pass for the truth.
const sealKey = ",\n  \"xxh3\": \""

func (m *Manifest) encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	body := bytes.TrimSuffix(b, []byte("\n}"))
	sum := Digest(xxh3.Hash128(body).Bytes())
	return append(body, sealKey+sum.String()+"\"\n}\n"...), nil
}

// decodeManifest reads what encode wrote and nothing else. A newer version is told
// apart first, since it may be sealed in another way. The error wraps ErrVersion or
// ErrForeign, or is a *CorruptError.
func decodeManifest(data []byte) (*Manifest, error) {
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	err := json.Unmarshal(data, &head)
	end := bytes.LastIndex(data, []byte(sealKey))
	var otherType *json.UnmarshalTypeError // of a document all the same, and Format is read
	if (err == nil || errors.As(err, &otherType)) && end < 0 && head.Format != "hsx" {
		return nil, fmt.Errorf("%s has no \"format\": \"hsx\": %w", manifestName, ErrForeign)
	}
	if err != nil {
		return nil, corrupt(manifestName, "not a JSON document of hsx: %w", err)
	}
	if head.Format == "hsx" && head.Version > Version {
		return nil, fmt.Errorf("%s has format version %d, this hsx reads up to %d: %w", manifestName, head.Version, Version, ErrVersion)
	}
	if end < 0 {
		return nil, corrupt(manifestName, "has no seal (a last member \"xxh3\")")
	}
	sum := Digest(xxh3.Hash128(data[:end]).Bytes())
	if want := sealKey + sum.String() + "\"\n}\n"; string(data[end:]) != want {
		return nil, corrupt(manifestName, "its bytes have XXH3 %s, its seal says otherwise: it was changed after it was written", sum)
	}
	m := &Manifest{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, corrupt(manifestName, "%w", err)
	}
	if err := m.check(); err != nil {
		return nil, corrupt(manifestName, "%w", err)
	}
	return m, nil
}

// check holds what a sealed manifest can still get wrong when a program other than
// hsx wrote it.
func (m *Manifest) check() error {
	if m.Format != "hsx" || m.Version < 1 {
		return fmt.Errorf("format is %q version %d, want \"hsx\" version 1 to %d", m.Format, m.Version, Version)
	}
	if (m.HiddenSize <= 0 || len(m.States) == 0) && len(m.Shards) > 0 {
		return errors.New("shards are listed without states")
	}
	for i, s := range m.States {
		if st := s.state(); st.Column() != s.Column || !st.DType.IsState() {
			return fmt.Errorf("state %d names the column %q, its members say %q of type %s", i, s.Column, st.Column(), s.DType)
		}
	}
	if err := m.Partition.check(); err != nil {
		return err
	}
	var rows, tokens int64
	seen := map[string]bool{}
	pattern := shardPattern()
	for i, s := range m.Shards {
		switch {
		case m.Version == 1 && s.Name != shardName(i):
			return fmt.Errorf("shard %d is named %q, want %q", i, s.Name, shardName(i))
		case m.Version > 1 && !pattern.MatchString(s.Name):
			return fmt.Errorf("shard %d is named %q, want a name like %q", i, s.Name, rewrittenName(i, s.XXH3))
		case seen[s.Name]:
			return fmt.Errorf("shard %d is named %q, as an earlier one", i, s.Name)
		}
		seen[s.Name] = true
		if s.Encoding != "" && (m.Version == 1 || s.Encoding != EncodingSplit) {
			return fmt.Errorf("shard %q has encoding %q, which version %d does not know", s.Name, s.Encoding, m.Version)
		}
		if s.Bytes <= 0 || s.Rows <= 0 || s.Tokens < s.Rows || len(s.Fingerprint) != len(m.States) {
			return fmt.Errorf("shard %q has %d bytes, %d rows, %d tokens and %d fingerprints", s.Name, s.Bytes, s.Rows, s.Tokens, len(s.Fingerprint))
		}
		rows += s.Rows
		tokens += s.Tokens
	}
	for _, j := range []struct {
		name  string
		lines Lines
	}{{inputsName, m.Inputs}, {rejectedName, m.Rejected}} {
		if err := j.lines.checkParts(j.name); err != nil {
			return err
		}
	}
	if rows != m.Rows || tokens != m.Tokens || m.Inputs.Bytes < 0 || m.Rejected.Bytes < 0 {
		return fmt.Errorf("totals are %d rows and %d tokens, the shards have %d and %d", m.Rows, m.Tokens, rows, tokens)
	}
	return nil
}

// shardName is the name of a shard that was written in its turn, the only one that
// version 1 knows.
func shardName(i int) string { return fmt.Sprintf("%06d.arrow", i) }

// rewrittenName is the name of a shard that takes the place of others, which it must
// not overwrite: the number of the first of them, and a part of its own hash.
func rewrittenName(number int, sum Digest) string {
	return fmt.Sprintf("%06d-%x.arrow", number, sum[:8])
}

// shardPattern is what version 2 asks of a shard's name, which becomes a path.
func shardPattern() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9]{6,18}(-[0-9a-z]+)?\.arrow$`)
}

// shardNumber is the number that a name begins with, which was checked.
func shardNumber(name string) int {
	digits, _, _ := strings.Cut(strings.TrimSuffix(name, ".arrow"), "-")
	n, _ := strconv.Atoi(digits) // of at most 18 digits
	return n
}

// readManifest reads the manifest of a place, and its version there. The error wraps
// ErrNotDataset when there is none, and may be decodeManifest's.
func readManifest(p place) (m *Manifest, version string, err error) {
	data, version, err := p.manifest()
	if err != nil {
		return nil, "", err
	}
	m, err = decodeManifest(data)
	return m, version, err
}

// oneTarget refuses a sample whose dump says that it is of another target than the
// dataset's.
func oneTarget(have, got format.Target) error {
	what, n, want := got.Conflict(have)
	switch {
	case what != "":
		return fmt.Errorf("target has %s %d, the dataset's has %d: one dataset holds one capture", what, n, want)
	case !got.SameName(have):
		return fmt.Errorf("target is %q, the dataset's is %q: one dataset holds one capture (if both are one model, --target says so)", got.Name, have.Name)
	}
	return nil
}

// agree reports, as the second half of a sentence about a dataset made for have, what
// t contradicts. What either side does not know agrees with everything.
func agree(t, have format.Target) error {
	if what, got, want := have.Conflict(t); what != "" {
		return fmt.Errorf("was made for a target with %s %d, not %d", what, got, want)
	}
	return nil
}
