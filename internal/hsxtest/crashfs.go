package hsxtest

import (
	"errors"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing/fstest"

	"hsx/internal/atomicfile"
)

// ErrCrash means that the simulated machine has lost its power.
var ErrCrash = errors.New("power lost")

// CrashFS is a file system over a real directory that remembers what of it a power
// loss would leave: the content of each file when it was last synced, the entries of
// each directory when that was. Its syncs do not wait for a disk.
type CrashFS struct {
	HookFS
	disk *disk

	mu      sync.Mutex
	ops     []Op
	stop    int // the operation to fail, counted from 0; -1: none
	stopped bool
}

// NewCrashFS takes what is in root, an absolute path, for durable.
func NewCrashFS(root string) (*CrashFS, error) {
	d, err := newDisk(root)
	if err != nil {
		return nil, err
	}
	c := &CrashFS{disk: d, stop: -1}
	c.FS, c.Before = d, c.before
	return c, nil
}

// StopAt makes the n-th operation from now on, counted from 0, and all after it fail
// with [ErrCrash]. With half, a write that is stopped has happened by half.
func (c *CrashFS) StopAt(n int, half bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop, c.Half = len(c.ops)+n, half
}

// Restart lets operations succeed again: the process was killed, and what it left
// unsynced is as it was.
func (c *CrashFS) Restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop, c.stopped = -1, false
}

// Stopped reports whether the operation that StopAt named was reached.
func (c *CrashFS) Stopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// Ops are the operations so far; the last one is that which was stopped.
func (c *CrashFS) Ops() []Op {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ops
}

func (c *CrashFS) before(op Op) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopped:
		return ErrCrash
	case op.Kind == OpClose: // whether it happened cannot be seen on disk
		return nil
	}
	c.ops = append(c.ops, op)
	c.stopped = len(c.ops)-1 == c.stop
	if c.stopped {
		return ErrCrash
	}
	return nil
}

// Keep decides whether something that was not synced survives: the entry of path in
// its directory, or the content of the file.
type Keep func(path string, content bool) bool

// KeepNothing loses all that was not synced.
func KeepNothing(string, bool) bool { return false }

// KeepEntries keeps every entry and cuts the files to what was synced of them.
func KeepEntries(_ string, content bool) bool { return !content }

// KeepAll loses nothing: the process was killed, the machine lives on.
func KeepAll(string, bool) bool { return true }

// KeepSome throws a coin for each entry and each content. Equal seeds throw equally.
func KeepSome(seed uint64) Keep {
	return func(path string, content bool) bool {
		h := fnv.New64a()
		_, _ = h.Write([]byte(path)) // never fails
		kind := uint64(0)
		if content {
			kind = 1
		}
		return rand.New(rand.NewPCG(seed, h.Sum64()+kind)).IntN(2) == 0
	}
}

// After is what a power loss now would leave of the root.
func (c *CrashFS) After(keep Keep) (fstest.MapFS, error) {
	c.disk.mu.Lock()
	defer c.disk.mu.Unlock()
	left := fstest.MapFS{}
	return left, c.disk.collect(c.disk.tree, left, "", true, keep)
}

// Materialise writes to the directory dst what a power loss now would leave of the root.
func (c *CrashFS) Materialise(dst string, keep Keep) error {
	left, err := c.After(keep)
	if err != nil {
		return err
	}
	return os.CopyFS(dst, left)
}

// disk passes operations through to the operating system and notes what is synced.
type disk struct {
	atomicfile.OS
	root string
	mu   sync.Mutex
	tree *node
}

// node is a file or a directory, whatever its names are.
type node struct {
	content []byte           // of a file when it was last synced
	entries map[string]*node // of a directory, nil for a file
	synced  map[string]*node // the entries when the directory was last synced
}

func newDisk(root string) (*disk, error) {
	tree, err := durable(root)
	return &disk{root: root, tree: tree}, err
}

// durable is the node of what is on the real disk.
func durable(name string) (*node, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		data, err := os.ReadFile(name)
		return &node{content: data}, err
	}
	n := &node{entries: map[string]*node{}}
	children, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	for _, e := range children {
		if n.entries[e.Name()], err = durable(filepath.Join(name, e.Name())); err != nil {
			return nil, err
		}
	}
	n.synced = maps.Clone(n.entries)
	return n, nil
}

// parent is the directory of a path below the root and the path's name in it.
func (d *disk) parent(path string) (dir *node, name string, err error) {
	rel, err := filepath.Rel(d.root, path)
	if err != nil {
		return nil, "", err
	}
	dir = d.tree
	parts := strings.Split(rel, string(filepath.Separator))
	for _, p := range parts[:len(parts)-1] {
		if dir = dir.entries[p]; dir == nil || dir.entries == nil {
			return nil, "", &os.PathError{Op: "find", Path: path, Err: os.ErrNotExist}
		}
	}
	return dir, parts[len(parts)-1], nil
}

// change notes a change of a directory that the operating system has made.
func (d *disk) change(path string, how func(dir *node, name string)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, name, err := d.parent(path)
	if err != nil {
		return err
	}
	how(dir, name)
	return nil
}

func (d *disk) OpenFile(name string, flag int, perm os.FileMode) (atomicfile.File, error) {
	f, err := d.OS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	r, err := os.Open(name)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	out := &diskFile{File: f, disk: d, reader: r}
	err = d.change(name, func(dir *node, base string) {
		if dir.entries[base] == nil {
			dir.entries[base] = &node{}
		}
		out.node = dir.entries[base]
	})
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

func (d *disk) Rename(oldname, newname string) error {
	if err := d.OS.Rename(oldname, newname); err != nil {
		return err
	}
	var moved *node
	return errors.Join(
		d.change(oldname, func(dir *node, name string) { moved = dir.entries[name]; delete(dir.entries, name) }),
		d.change(newname, func(dir *node, name string) { dir.entries[name] = moved }))
}

// Link takes an old name outside of the root for that of a durable file.
func (d *disk) Link(oldname, newname string) error {
	if err := d.OS.Link(oldname, newname); err != nil {
		return err
	}
	var linked *node
	inside := d.change(oldname, func(dir *node, name string) { linked = dir.entries[name] })
	if inside != nil || linked == nil {
		var err error
		if linked, err = durable(oldname); err != nil {
			return err
		}
	}
	return d.change(newname, func(dir *node, name string) { dir.entries[name] = linked })
}

func (d *disk) Remove(name string) error {
	if err := d.OS.Remove(name); err != nil {
		return err
	}
	return d.change(name, func(dir *node, name string) { delete(dir.entries, name) })
}

func (d *disk) Mkdir(name string, perm os.FileMode) error {
	if err := d.OS.Mkdir(name, perm); err != nil {
		return err
	}
	return d.change(name, func(dir *node, name string) {
		dir.entries[name] = &node{entries: map[string]*node{}}
	})
}

func (d *disk) SyncDir(name string) error {
	if rel, err := filepath.Rel(d.root, name); err != nil || !filepath.IsLocal(rel) {
		return err // what lies outside is durable
	} else if rel == "." {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.tree.synced = maps.Clone(d.tree.entries)
		return nil
	}
	found := false
	err := d.change(name, func(dir *node, name string) {
		if n := dir.entries[name]; n != nil && n.entries != nil {
			n.synced, found = maps.Clone(n.entries), true
		}
	})
	if err == nil && !found {
		err = &os.PathError{Op: "sync", Path: name, Err: os.ErrNotExist}
	}
	return err
}

// collect adds a node to what is left, under a path below the root. live says that
// the real disk has it there too.
func (d *disk) collect(n *node, left fstest.MapFS, name string, live bool, keep Keep) error {
	if n.entries == nil {
		file := &fstest.MapFile{Data: n.content, Mode: 0o600}
		if live && keep(name, true) {
			var err error
			if file.Data, err = os.ReadFile(filepath.Join(d.root, name)); err != nil {
				return err
			}
		}
		left[name] = file
		return nil
	}
	if name != "" {
		left[name] = &fstest.MapFile{Mode: fs.ModeDir | 0o700}
	}
	names := maps.Clone(n.entries)
	maps.Copy(names, n.synced)
	for base := range names {
		child := path.Join(name, base)
		is, was := n.entries[base], n.synced[base]
		kept := was
		if is != was && keep(child, false) {
			kept = is
		}
		if kept == nil {
			continue
		}
		if err := d.collect(kept, left, child, live && kept == is, keep); err != nil {
			return err
		}
	}
	return nil
}

// diskFile is an open file. It has a descriptor of its own to read what is synced,
// since its name may change.
type diskFile struct {
	atomicfile.File
	disk   *disk
	node   *node
	reader *os.File
}

func (f *diskFile) Sync() error {
	data, err := io.ReadAll(io.NewSectionReader(f.reader, 0, 1<<62))
	if err != nil {
		return err
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.node.content = data
	return nil
}

func (f *diskFile) Close() error { return errors.Join(f.File.Close(), f.reader.Close()) }
