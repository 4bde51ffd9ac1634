package shard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

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

// openJournal reads the committed part, hands each line to use, and cuts off what a
// killed writer left behind it.
func openJournal[T any](fs atomicfile.FS, dir, name string, committed Lines, use func(T) error) (*journal, error) {
	j := &journal{name: name, lines: committed}
	data, err := eachLine(directory(dir), name, committed, use)
	if err != nil {
		return nil, err
	}
	_, _ = j.hash.Write(data) // never fails
	path := filepath.Join(dir, name)
	if info, err := os.Stat(path); err == nil && info.Size() > committed.Bytes {
		return j, fs.Truncate(path, committed.Bytes)
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
	if int64(len(data)) < committed.Bytes {
		return nil, corrupt(name, "has %d bytes, the manifest calls for %d", len(data), committed.Bytes)
	}
	data = data[:committed.Bytes]
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
