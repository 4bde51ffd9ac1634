package export

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"hsx/internal/atomicfile"
)

// What is made durable at a time. An fsync of a small file takes as long as one of some
// megabytes, so files are collected, and several are synced at once.
const (
	batchBytes = 256 << 20
	batchFiles = 64
	syncers    = 8
)

// output is a unit on its way to the disk: written, under temporary names.
type output struct {
	unit  *unit
	files []*outFile // in the order in which they get their names
}

// outFile is a file whose writing the kernel is asked to begin early.
type outFile struct {
	*atomicfile.Pending
	path    string
	n       int64
	started int64 // of n
}

// Write adds to the file.
func (f *outFile) Write(b []byte) (int, error) {
	const step = 16 << 20
	n, err := f.Pending.Write(b)
	if f.n += int64(n); f.n-f.started >= step {
		f.startWriteback()
	}
	return n, err
}

func (f *outFile) startWriteback() {
	atomicfile.StartWriteback(f.Pending, f.started, f.n-f.started)
	f.started = f.n
}

func (o *output) bytes() int64 {
	n := int64(0)
	for _, f := range o.files {
		n += f.n
	}
	return n
}

// discard removes the files of a unit that is not to be.
func (o *output) discard() {
	for _, f := range o.files {
		_ = f.Discard() // a temporary name means nothing
	}
}

func (o *output) entry() entry {
	e := entry{File: o.unit.name, Bytes: o.bytes()}
	for _, r := range o.unit.rows {
		e.Tokens += r.tokens
	}
	if o.unit.stream == oneSample {
		r := o.unit.rows[0]
		e.ID, e.Digest = r.id, &r.digest
	}
	return e
}

// committer gives finished units their names, in batches, while the next are written.
type committer struct {
	fs      atomicfile.FS
	dir     string
	journal *journal
	full    chan []*output
	failed  context.CancelFunc // is called after an error: no more is worth writing

	mu    sync.Mutex
	batch []*output
	bytes int64           // of batch
	files int             // likewise
	made  map[string]bool // directories that exist
	fresh map[string]bool // directories with new entries that are not durable
}

// create opens a file of a unit for writing, and makes its directory.
func (c *committer) create(o *output, name string) (*outFile, error) {
	path := filepath.Join(c.dir, filepath.FromSlash(name))
	if err := c.mkdir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	p, err := atomicfile.Create(c.fs, path)
	if err != nil {
		return nil, err
	}
	f := &outFile{Pending: p, path: path}
	o.files = append(o.files, f)
	return f, nil
}

func (c *committer) mkdir(dir string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.missing(dir) {
		if err := c.fs.Mkdir(d, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		c.made[d], c.fresh[filepath.Dir(d)] = true, true
	}
	return nil
}

// missing are the directories down to dir that are not known to exist, the outer first.
func (c *committer) missing(dir string) []string {
	var out []string
	for ; dir != c.dir && !c.made[dir]; dir = filepath.Dir(dir) {
		out = append(out, dir)
	}
	slices.Reverse(out)
	return out
}

// add takes a finished unit. It blocks while two batches are on their way.
func (c *committer) add(o *output) {
	for _, f := range o.files {
		f.startWriteback()
	}
	c.mu.Lock()
	c.batch = append(c.batch, o)
	c.bytes += o.bytes()
	var full []*output
	c.files += len(o.files)
	if c.bytes >= batchBytes || c.files >= batchFiles {
		full, c.batch, c.bytes, c.files = c.batch, nil, 0, 0
	}
	c.mu.Unlock()
	if full != nil {
		c.full <- full
	}
}

// run commits batches until there are no more. After an error it throws away the rest.
func (c *committer) run() error {
	var err error
	for batch := range c.full {
		if err != nil {
			for _, o := range batch {
				o.discard()
			}
			continue
		}
		if err = c.commit(batch); err != nil {
			c.failed()
		}
	}
	return err
}

// commit makes units durable: the content of their files, then the names, then the
// lines of the journal.
func (c *committer) commit(batch []*output) error {
	g := errgroup.Group{}
	g.SetLimit(syncers)
	for _, o := range batch {
		for _, f := range o.files {
			g.Go(func() error { return errors.Join(f.Sync(), f.Close()) })
		}
	}
	if err := g.Wait(); err != nil {
		c.remove(batch)
		return err
	}
	c.mu.Lock()
	dirs := c.fresh
	c.fresh = map[string]bool{}
	c.mu.Unlock()
	var entries []entry
	for i, o := range batch {
		for _, f := range o.files {
			if err := c.fs.Rename(f.path+atomicfile.TempSuffix, f.path); err != nil {
				c.remove(batch[i:])
				return err
			}
			dirs[filepath.Dir(f.path)] = true
		}
		entries = append(entries, o.entry())
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := c.fs.SyncDir(dir); err != nil {
			return err
		}
	}
	if entries == nil {
		return nil
	}
	return c.journal.add(entries)
}

// remove takes away what has no name of its own yet.
func (c *committer) remove(batch []*output) {
	for _, o := range batch {
		for _, f := range o.files {
			_ = c.fs.Remove(f.path + atomicfile.TempSuffix) // a temporary name means nothing
		}
	}
}
