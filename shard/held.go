package shard

import (
	"fmt"
	"path"
	"strings"
	"time"

	"hsx/format"
)

// known is one input that the dataset has samples of.
type known struct {
	format.Input
	done bool
}

// input notes an input and returns its index.
func (w *Writer) input(in format.Input, done bool) int32 {
	i, ok := w.inputs[in.Path]
	if !ok {
		i = int32(len(w.names))
		w.names = append(w.names, known{Input: in})
		w.inputs[in.Path] = i
		if w.alike != nil {
			w.alike[likenessOf(in)] = i
		}
	}
	w.names[i].done = w.names[i].done || done
	return i
}

// Has reports whether the dataset holds all samples of an input. An input that was
// taken in another state (size or modification time) is an error that says so.
func (w *Writer) Has(in format.Input) (bool, error) {
	i, ok := w.inputs[in.Path]
	if !ok {
		return false, nil
	}
	k := w.names[i]
	if k.Bytes != in.Bytes || k.ModTime != in.ModTime {
		return false, fmt.Errorf("source changed since it was taken: it had %d bytes of %s, it has %d of %s (its samples in the dataset stay as they are; if it is another file, name it relative to another directory with --root)",
			k.Bytes, stamp(k.ModTime), in.Bytes, stamp(in.ModTime))
	}
	return k.done, nil
}

func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02T15:04:05.000Z") }

// likeness is what an input keeps when it is named relative to another directory.
type likeness struct {
	base           string
	bytes, modTime int64
}

func likenessOf(in format.Input) likeness {
	return likeness{path.Base(in.Path), in.Bytes, in.ModTime}
}

// Renamed names an input of the dataset that has the size and the time of in, and a name
// that ends with that of in, or the other way round; "" when there is none. As a rule it
// is the same file, named relative to another directory.
func (w *Writer) Renamed(in format.Input) string {
	if w.alike == nil {
		w.alike = make(map[likeness]int32, len(w.names))
		for i, k := range w.names {
			w.alike[likenessOf(k.Input)] = int32(i)
		}
	}
	i, like := w.alike[likenessOf(in)]
	if _, held := w.inputs[in.Path]; held || !like {
		return ""
	}
	have := w.names[i].Path
	if strings.HasSuffix(have, "/"+in.Path) || strings.HasSuffix(in.Path, "/"+have) {
		return have
	}
	return ""
}
