package shard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/zeebo/xxh3"

	"hsx/format"
	"hsx/internal/atomicfile"
)

// entry is one line of inputs.jsonl: samples of one input that one commit holds. An
// input that straddles commits has several lines; the last one says Done.
type entry struct {
	format.Input
	IDs  []string `json:"ids"`
	Done bool     `json:"done"`
}

// journal is an append-only file of JSON lines, of which the manifest names the
// committed part.
type journal struct {
	name    string // in the dataset
	lines   Lines
	hash    xxh3.Hasher // of the committed part and pending
	pending []byte
	added   int64
}

// partName is the name of the object that holds a part of a journal, which no other
// content has.
func partName(name string, sum Digest) string {
	return fmt.Sprintf("%s-%x.jsonl", strings.TrimSuffix(name, ".jsonl"), sum[:8])
}

func partPattern() *regexp.Regexp {
	return regexp.MustCompile(`^(inputs|rejected)-[0-9a-f]{16}\.jsonl$`)
}

// in is where the committed part of the named journal lies.
func (l Lines) in(name string) []Part {
	if len(l.Parts) > 0 {
		return l.Parts
	}
	return []Part{{Name: name, Bytes: l.Bytes}}
}

// checkParts holds the parts of a journal against what all of them are to be.
func (l Lines) checkParts(name string) error {
	if len(l.Parts) == 0 {
		return nil
	}
	left := l.Bytes
	for _, p := range l.Parts {
		if !partPattern().MatchString(p.Name) || p.Bytes <= 0 || p.Bytes > left {
			return fmt.Errorf("%s has a part %q of %d bytes, of %d left", name, p.Name, p.Bytes, left)
		}
		left -= p.Bytes
	}
	if left != 0 {
		return fmt.Errorf("%s has %d bytes, its parts %d less", name, l.Bytes, left)
	}
	return nil
}

// openJournal reads the committed part from a place, hands each line to use, and cuts
// off what a killed writer left behind it in dir.
func openJournal[T any](fs atomicfile.FS, p place, dir, name string, committed Lines, use func(T) error) (*journal, error) {
	j := &journal{name: name, lines: committed}
	data, err := eachLine(p, name, committed, use)
	if err != nil {
		return nil, err
	}
	_, _ = j.hash.Write(data) // never fails
	j.lines.Parts = nil       // in dir it is one file
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Size() > committed.Bytes:
		return j, fs.Truncate(path, committed.Bytes)
	case errors.Is(err, os.ErrNotExist) && len(data) > 0: // it lies elsewhere
		return j, atomicfile.Append(fs, path, data)
	}
	return j, nil
}

// eachLine hands the value of each line of the committed part to use, and returns that
// part.
func eachLine[T any](p place, name string, committed Lines, use func(T) error) ([]byte, error) {
	data, err := readCommitted(p, name, committed)
	if err != nil {
		return nil, err
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, corrupt(name, "line %d: %w", n, err)
		}
		if err := use(v); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// readCommitted reads the part of a journal that the manifest names, and checks it.
func readCommitted(p place, name string, committed Lines) ([]byte, error) {
	if committed.Bytes == 0 {
		return nil, nil
	}
	data, err := p.lines(name, committed)
	if err != nil {
		return nil, err
	}
	if sum := Digest(xxh3.Hash128(data).Bytes()); sum != committed.XXH3 {
		return nil, corrupt(name, "has XXH3 %s, the manifest calls for %s", sum, committed.XXH3)
	}
	return data, nil
}

// add puts one value on the list for the next commit.
func (j *journal) add(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a line of %s: %w", j.name, err)
	}
	j.pending = append(append(j.pending, line...), '\n')
	j.added++
	return nil
}

// write appends the pending lines durably and returns what the manifest must say.
func (j *journal) write(fs atomicfile.FS, dir string) (Lines, error) {
	if len(j.pending) == 0 {
		return j.lines, nil
	}
	if err := atomicfile.Append(fs, filepath.Join(dir, j.name), j.pending); err != nil {
		return Lines{}, err
	}
	_, _ = j.hash.Write(j.pending) // never fails
	j.lines.Lines += j.added
	j.lines.Bytes += int64(len(j.pending))
	j.lines.XXH3 = Digest(j.hash.Sum128().Bytes())
	j.pending, j.added = nil, 0
	return j.lines, nil
}
