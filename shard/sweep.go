package shard

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hsx/internal/atomicfile"
)

// Garbage is something that a writer which did not come to its end left in a dataset,
// or that later commits made useless.
type Garbage struct {
	Name     string    `json:"name"`             // relative to the dataset
	Upload   string    `json:"upload,omitempty"` // the store's id, when it is an upload that was not completed
	Bytes    int64     `json:"bytes"`            // 0 when it is not known
	Modified time.Time `json:"modified"`
}

// Sweepable is a store that can be cleaned.
type Sweepable interface {
	Store
	// Remove removes an object. That there is none is no error.
	Remove(ctx context.Context, name string) error
	// Uploads tells of each upload that was begun and not completed.
	Uploads(ctx context.Context, each func(name, id string, begun time.Time) error) error
	// Abort ends such an upload and frees its room.
	Abort(ctx context.Context, name, id string) error
}

// FindGarbage lists what no manifest needs in a dataset in a store and was left there
// before a time, oldest first. What is younger may be on its way into a commit.
func FindGarbage(ctx context.Context, s Sweepable, before time.Time) ([]Garbage, error) {
	var found []Garbage
	err := s.List(ctx, "", func(name string, size int64, modified time.Time) error {
		if name != manifestName && ownObject(name) && modified.Before(before) {
			found = append(found, Garbage{Name: name, Bytes: size, Modified: modified})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Only now: what was committed since the list began is listed in it.
	m, _, err := readManifest(newBucket(ctx, s))
	if err != nil && !errors.Is(err, ErrNotDataset) { // then it is of a first commit that never came
		return nil, err
	}
	needed := m.needs()
	found = slices.DeleteFunc(found, func(g Garbage) bool { return needed[g.Name] })
	err = s.Uploads(ctx, func(name, id string, begun time.Time) error {
		if ownObject(name) && begun.Before(before) {
			found = append(found, Garbage{Name: name, Upload: id, Modified: begun})
		}
		return nil
	})
	slices.SortStableFunc(found, func(a, b Garbage) int { return cmp.Or(a.Modified.Compare(b.Modified), cmp.Compare(a.Name, b.Name)) })
	return found, err
}

// RemoveGarbage removes what [FindGarbage] found.
func RemoveGarbage(ctx context.Context, s Sweepable, found []Garbage) error {
	for _, g := range found {
		var err error
		if g.Upload != "" {
			err = s.Abort(ctx, g.Name, g.Upload)
		} else {
			err = s.Remove(ctx, g.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// needs is the names of the files that belong to a dataset.
func (m *Manifest) needs() map[string]bool {
	needed := map[string]bool{manifestName: true, inputsName: true, rejectedName: true}
	if m == nil {
		return needed
	}
	for _, s := range m.Shards {
		needed[shardsDir+"/"+s.Name] = true
	}
	for _, p := range slices.Concat(m.Inputs.Parts, m.Rejected.Parts) {
		needed[p.Name] = true
	}
	return needed
}

// SweepDir finds what no manifest needs in the directory of a dataset and was left
// there before a time, and removes it if asked to. It takes the writer's lock: the error
// wraps ErrLocked while a writer is at work.
func SweepDir(dir string, before time.Time, remove bool) (found []Garbage, err error) {
	if _, _, err := readManifest(directory(dir)); err != nil {
		return nil, err
	}
	l, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	m, _, err := readManifest(directory(dir))
	if err != nil {
		return nil, err
	}
	needed := m.needs()
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || needed[name] || !ownObject(strings.TrimSuffix(name, atomicfile.TempSuffix)) {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.ModTime().Before(before) {
			found = append(found, Garbage{Name: name, Bytes: info.Size(), Modified: info.ModTime()})
		}
		return nil
	})
	if err != nil || !remove {
		return found, err
	}
	for _, g := range found {
		if err := os.Remove(filepath.Join(dir, filepath.FromSlash(g.Name))); err != nil {
			return found, err
		}
	}
	return found, nil
}
