package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"hsx/format"
	"hsx/format/npy"
	"hsx/format/producer"
	"hsx/internal/mapped"
)

// loaded is one input that was opened, or the reason why not. Exactly one of err,
// side, ignored and match says what it is.
type loaded struct {
	input     format.Input
	container string       // for people: "torch archive in gzip"
	value     format.Value // what the container held
	match     *producer.Match
	items     []item
	notes     []string
	side      string // what it is, when a producer writes such files beside its samples
	ignored   string // why it is no dump
	err       error
	files     []*mapped.File
}

// item is one sample of an input, or why it is none.
type item struct {
	sample *format.Sample
	err    error
}

func (l *loaded) close() {
	for _, f := range l.files {
		_ = f.Close() // mapped for reading: nothing can be lost
	}
	l.files = nil
}

// intact reports whether the input's files are as they were opened.
func (l *loaded) intact() error {
	for _, f := range l.files {
		if err := f.Intact(); err != nil {
			return err
		}
	}
	return nil
}

// open loads units ahead of their consumer, which gets them in order. It ends when
// ctx does; what was loaded by then still comes out of the channels.
func (p *Plan) open(ctx context.Context, units []unit) <-chan chan *loaded {
	out := make(chan chan *loaded, max(1, cmp.Or(p.opt.Workers, 2))-1)
	go func() {
		defer close(out)
		for _, u := range units {
			ch := make(chan *loaded, 1)
			select {
			case out <- ch:
			case <-ctx.Done():
				return
			}
			go func() { ch <- p.load(ctx, u) }()
		}
	}()
	return out
}

// load opens one unit and checks it through and through.
func (p *Plan) load(ctx context.Context, u unit) *loaded {
	l := &loaded{input: u.input}
	if l.err = ctx.Err(); l.err != nil {
		return l
	}
	limit := cmp.Or(p.opt.LockTimeout, 10*time.Second)
	if len(u.files) > maxArrays {
		l.err = &producer.FieldError{Kind: format.ErrLimit, Err: fmt.Errorf("directory has %d .npy files, want at most %d, those of one sample (or --map with a star that tells samples apart)", len(u.files), maxArrays)}
		return l
	}
	for _, path := range u.files {
		if l.err = p.files.unlocked(ctx, path, limit); l.err != nil {
			return l
		}
		f, err := p.files.open(path)
		if err != nil {
			l.err = err
			return l
		}
		l.files = append(l.files, f)
		f.Populate()
	}
	if p.opt.Tree == nil { // what a tree listed is held against what it opened
		l.restat()
	}
	l.err = mapped.Guard(func() error {
		if u.kind == arraysUnit && (len(u.files) > 1 || npy.IsFile(l.files[0].Bytes())) {
			return loadArrays(l, u, p.opt.Facts)
		}
		return p.loadFile(l, u)
	})
	return l
}

// restat takes the sizes and times of the files as they were opened: a file may have
// grown since it was listed.
func (l *loaded) restat() {
	l.input.Bytes, l.input.ModTime = 0, 0
	for _, f := range l.files {
		l.input.Bytes += int64(len(f.Bytes()))
		l.input.ModTime = max(l.input.ModTime, f.ModTime().UnixNano())
	}
}

// loadFile decodes a file by its content and assembles its samples.
func (p *Plan) loadFile(l *loaded, u unit) error {
	path := u.files[0]
	c, err := decode(l.files[0].Bytes(), path)
	if err != nil {
		return err
	}
	l.container, l.notes = c.name, c.notes
	if c.side != "" || c.ignored != "" {
		l.side, l.ignored = c.side, c.ignored
		return nil
	}
	dumps := []producer.Dump{{Container: c.container, Value: c.value, Metadata: c.metadata}}
	l.value = c.value
	switch {
	case c.answers != nil:
		if dumps, err = answerDumps(p.files, path, c.answers); err != nil {
			return err
		}
		l.value = dumps[0].Value
	case u.set != nil:
		if dumps[0].Row, err = u.set.row(u.row); err != nil {
			return fmt.Errorf("dataset of the token ids: %w", err)
		}
	}
	if dumps[0].Siblings, err = p.siblings.in(p.files, filepath.Dir(path)); err != nil {
		return err
	}
	return assemble(l, dumps, p.opt.Facts)
}

// The bounds of one input: a directory maps each of its arrays, and a sample costs a
// few hundred bytes however little it holds. No honest dump comes near either.
const (
	maxArrays      = 1000
	freeSamples    = 1 << 16
	bytesPerSample = 64
)

// assemble has the producer recognised and collects the samples. A value that no
// producer wrote may still be one of the files that they write beside their samples.
func assemble(l *loaded, dumps []producer.Dump, facts producer.Facts) error {
	most := freeSamples + int(l.input.Bytes/bytesPerSample)
	for _, d := range dumps {
		m, err := producer.Recognise(d, facts)
		if err != nil {
			var unknown *producer.UnknownError
			if what, ok := producer.SideFile(d.Value); ok && errors.As(err, &unknown) {
				l.side = what
				return nil
			}
			return err
		}
		l.match = m
		for s, err := range m.Samples() {
			if err == nil {
				s.Input, s.Intact = l.input, l.intact
			}
			if len(l.items) == most {
				return &producer.FieldError{Kind: format.ErrLimit, Err: fmt.Errorf("dump holds more than %d samples, too many for its %d bytes", most, l.input.Bytes)}
			}
			l.items = append(l.items, item{s, err})
		}
	}
	if len(l.items) > 0 && !utf8.ValidString(l.input.Path) {
		return &producer.FieldError{Kind: format.ErrUnsupported, Err: errors.New("name is not valid UTF-8, as the names in a dataset are: rename it")}
	}
	for i, it := range l.items {
		if it.sample == nil || it.sample.ID != "" {
			continue
		}
		it.sample.ID = l.input.Path
		if len(l.items) > 1 {
			it.sample.ID = fmt.Sprintf("%s#%d", l.input.Path, i)
		}
	}
	if len(l.items) == 0 {
		return &producer.FieldError{Kind: format.ErrCorrupt, Err: errors.New("dump holds no samples")}
	}
	return nil
}

// looksLikeDump reports whether a file's name promises a dump, so that content of no
// known kind is a fault and not a bystander.
func looksLikeDump(path string) bool {
	switch plainExt(path) {
	case ".ckpt", ".pt", ".pth", ".bin", ".safetensors", ".npz", ".npy", ".arrow":
		return true
	}
	return false
}

// plainExt is the extension of a file's name without that of a compression.
func plainExt(path string) string {
	if ext := filepath.Ext(path); ext == ".gz" || ext == ".zst" {
		path = strings.TrimSuffix(path, ext)
	}
	return filepath.Ext(path)
}
