package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"hsx/format"
	"hsx/format/safetensors"
	"hsx/format/torch"
	"hsx/internal/mapped"
)

// checkpoint is the tensors of a model's directory, mapped: only what is looked at is
// read.
type checkpoint struct {
	record *format.Record
	files  []*mapped.File
}

// tensor is the tensor of a name, nil when there is none.
func (c *checkpoint) tensor(name string) *format.Tensor { return c.record.Tensor(name) }

func (c *checkpoint) close() {
	for _, f := range c.files {
		_ = f.Close() // mapped for reading: nothing can be lost
	}
}

// openCheckpoint opens the tensors of a model's directory: safetensors, by an index
// when there is one, or a torch archive. It returns nil when path is no directory or
// holds no tensors, as one that has the config alone.
func openCheckpoint(path string) (*checkpoint, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return nil, err
	}
	names, err := checkpointFiles(path)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	c := &checkpoint{record: &format.Record{}}
	for _, name := range names {
		if err := c.open(filepath.Join(path, name)); err != nil {
			c.close()
			return nil, fmt.Errorf("read %s: %w", filepath.Join(path, name), err)
		}
	}
	return c, nil
}

// checkpointFiles lists the files of a checkpoint, as Hugging Face names them.
func checkpointFiles(dir string) ([]string, error) {
	for _, single := range []string{"model.safetensors", "pytorch_model.bin"} {
		if _, err := os.Stat(filepath.Join(dir, single)); err == nil {
			return []string{single}, nil
		}
		index := single + ".index.json"
		data, err := os.ReadFile(filepath.Join(dir, index))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var i struct {
			Files map[string]string `json:"weight_map"`
		}
		if err := json.Unmarshal(data, &i); err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, index), err)
		}
		var names []string
		for _, name := range i.Files {
			if name != filepath.Base(name) || name == ".." {
				return nil, fmt.Errorf("read %s: %q is not the name of a file beside it", filepath.Join(dir, index), name)
			}
			names = append(names, name)
		}
		slices.Sort(names)
		return slices.Compact(names), nil
	}
	return nil, nil
}

func (c *checkpoint) open(path string) error {
	f, err := mapped.Open(path)
	if err != nil {
		return err
	}
	c.files = append(c.files, f)
	return mapped.Guard(func() error {
		rec, err := decodeCheckpoint(f.Bytes())
		if err == nil {
			c.record.Fields = append(c.record.Fields, rec.Fields...)
		}
		return err
	})
}

func decodeCheckpoint(data []byte) (*format.Record, error) {
	if !torch.IsArchive(data) {
		f, err := safetensors.Decode(data)
		if err != nil {
			return nil, err
		}
		return f.Record, nil
	}
	a, err := torch.Decode(data, torch.Options{SkipCRC: true}) // of gigabytes, a few rows are read
	if err != nil {
		return nil, err
	}
	rec, ok := a.Value.(*format.Record)
	if !ok {
		return nil, errors.New("archive holds no named tensors")
	}
	return rec, nil
}
