package shard

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"hsx/format"
	"hsx/internal/atomicfile"
	"hsx/internal/mapped"
)

// committer owns the files of a dataset while a writer is open: it puts batches into
// the current shard and commits shards.
type committer struct {
	opt      Options
	place    place
	dir      string // of the files being written
	manifest *Manifest
	inputs   *journal
	rejected *journal
	cur      *openShard
	fresh    bool // there is no manifest yet
	box      *outbox
	single   *batch
	spare    *batch  // of the writer, while shards are rewritten
	pack     *packer // nil: shards are written plain
}

func (c *committer) do(t task) error {
	switch {
	case t.batch != nil:
		return c.writeBatch(t.batch)
	case t.sample != nil:
		return c.writeSample(t.sample)
	case t.rewrite != nil:
		if err := c.settle(c.commit(false)); err != nil {
			return err
		}
		return c.settle(t.rewrite(c))
	}
	return c.settle(c.commit(t.done))
}

// settle waits for what was committed to be durable.
func (c *committer) settle(err error) error {
	if err != nil || c.box == nil {
		return err
	}
	return c.box.wait()
}

// writeBatch adds gathered samples to the current shard.
func (c *committer) writeBatch(b *batch) error {
	if b.rowsInBatch > 0 {
		if err := c.room(b.layout, b.stateBytes, b.origin); err != nil {
			return err
		}
		if err := c.cur.write(b); err != nil {
			return err
		}
	}
	return c.note(b)
}

// writeSample adds a sample that is a batch of its own, straight from its memory.
func (c *committer) writeSample(s *format.Sample) error {
	if err := c.room(s.Layout(), s.Bytes(), s.Origin); err != nil {
		return err
	}
	if c.single == nil {
		c.single = newBatch(0)
	}
	c.single.reset()
	c.single.layout = s.Layout()
	c.single.addSmall(s, [digestSize]byte{}) // the digest follows when the states are read
	err := mapped.Guard(func() error { return c.cur.stream(c.single, s) })
	switch {
	case errors.Is(err, mapped.ErrFault):
		return c.takeBack(err)
	case err != nil:
		return err
	}
	return c.note(c.single)
}

// takeBack removes a shard that the sample which faulted was to be the first of, and
// returns the fault. Another error says that the shard is beyond use, which concerns all
// samples.
func (c *committer) takeBack(fault error) error {
	if c.cur.info.Rows > 0 {
		return fault
	}
	s := c.cur
	c.cur = nil
	return cmp.Or(s.discard(), fault)
}

// room makes the current shard one that a batch of the given bytes fits into.
func (c *committer) room(l format.Layout, bytes int64, origin format.Origin) error {
	if c.cur != nil && c.cur.size()+bytes > c.opt.ShardBytes {
		if err := c.commit(false); err != nil {
			return err
		}
	}
	if c.cur == nil {
		var err error
		c.cur, err = createShard(c.opt.fs, filepath.Join(c.dir, shardsDir), c.manifest.nextName(), l, c.pack)
		if err != nil {
			return err
		}
		c.cur.layout = l
	}
	c.cur.origin = origin // the latest knows most of the target
	return nil
}

// note puts a written batch's inputs and refusals on the lists of the next commit.
func (c *committer) note(b *batch) error {
	for _, e := range b.entries {
		if err := c.inputs.add(e); err != nil {
			return err
		}
	}
	for _, r := range b.rejects {
		if err := c.rejected.add(r); err != nil {
			return err
		}
	}
	return nil
}

// commit makes the current shard and the pending lines durable, in the order that
// doc.go lays down: a manifest never lists what a power loss can take. A part is done
// with a commit that says so, until something is added.
func (c *committer) commit(done bool) error {
	part := c.manifest.Partition
	if c.cur == nil && c.inputs.added+c.rejected.added == 0 && !c.fresh && (!done || part == nil || part.Done) {
		return nil
	}
	m := *c.manifest
	if part != nil {
		m.Partition = &Partition{Index: part.Index, Of: part.Of, Plan: part.Plan, Done: done}
	}
	if c.cur != nil {
		if len(m.Shards) == 0 { // the first shard says what the dataset holds
			m.setLayout(c.cur.layout)
			m.Origin = c.cur.origin
		}
		m.Target = m.Target.Or(c.cur.origin.Target)
		info, err := c.cur.finish(m.States)
		if err != nil {
			return err
		}
		c.cur = nil
		if c.box != nil {
			c.box.rename(&info)
		}
		m.setShards(append(m.Shards, info))
	}
	var err error
	if m.Inputs, err = c.inputs.write(c.opt.fs, c.dir); err != nil {
		return err
	}
	if m.Rejected, err = c.rejected.write(c.opt.fs, c.dir); err != nil {
		return err
	}
	if err := c.publish(&m); err != nil {
		return err
	}
	if c.opt.Committed != nil {
		c.opt.Committed(m.Rows)
	}
	return nil
}

// abandon removes the shard that no commit completed.
func (c *committer) abandon() {
	if c.cur != nil {
		_ = c.cur.discard() // the next writer removes what is left
		c.cur = nil
	}
	_ = c.pack.close() // memory
}

// removeUnlisted removes what a killed writer left: unfinished files, and shards
// that were complete before a manifest could list them.
func removeUnlisted(fs atomicfile.FS, dir string, m *Manifest) error {
	listed := map[string]bool{}
	for _, s := range m.Shards {
		listed[s.Name] = true
	}
	entries, err := os.ReadDir(filepath.Join(dir, shardsDir))
	if err != nil {
		return err
	}
	ours := shardPattern()
	for _, e := range entries {
		if ours.MatchString(strings.TrimSuffix(e.Name(), atomicfile.TempSuffix)) && !listed[e.Name()] {
			if err := fs.Remove(filepath.Join(dir, shardsDir, e.Name())); err != nil {
				return err
			}
		}
	}
	err = fs.Remove(filepath.Join(dir, manifestName+atomicfile.TempSuffix))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
