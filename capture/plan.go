package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hsx/format"
)

// Plan is what a run will look at: every input under the given paths, in an order
// that does not depend on the file system's.
type Plan struct {
	opt      Options
	files    files
	root     string
	units    []unit
	bytes    int64
	siblings siblingCache
	datasets map[string]*hfDataset // by directory; nil where there is none
	warnings []warning
	refused  []refusal
	names    map[string]bool // of the units, once somebody asks for one
	digest   string          // of all inputs, also those of other parts
	progress func(Progress)
}

// OnProgress has f called after each input of a run.
func (p *Plan) OnProgress(f func(Progress)) { p.progress = f }

type warning struct{ input, message string }

// refusal is an input that a plan has no unit for.
type refusal struct {
	input format.Input
	err   error
}

// unit is one input: a file, or the .npy files of a directory that belong together.
type unit struct {
	input format.Input // Path is relative to the root
	kind  unitKind
	files []string // absolute; a file unit has one
	row   int      // of the Hugging Face dataset that the file belongs to, -1 when none
	set   *hfDataset
}

type unitKind uint8

const (
	fileUnit   unitKind = iota
	arraysUnit          // .npy files of one sample, or of several with --map
)

// Inputs is the number of inputs.
func (p *Plan) Inputs() int { return len(p.units) }

// Bytes is the size of all inputs.
func (p *Plan) Bytes() int64 { return p.bytes }

// Root is the directory that sources are named relative to.
func (p *Plan) Root() string { return p.root }

// lists reports whether an input of that name is one of the plan's.
func (p *Plan) lists(name string) bool {
	if p.names == nil {
		p.names = make(map[string]bool, len(p.units))
		for _, u := range p.units {
			p.names[u.input.Path] = true
		}
	}
	return p.names[name]
}

// NewPlan lists the inputs under paths: files, and directories with all that is in
// them, or with Options.Tree all that is there. Names decide which files belong
// together; what a file holds is seen when it is read. ctx also ends the reading of a
// tree.
func NewPlan(ctx context.Context, paths []string, opt Options) (*Plan, error) {
	p, found, err := find(ctx, paths, opt)
	if err != nil {
		return nil, err
	}
	p.group(found)
	slices.SortFunc(p.units, func(a, b unit) int { return naturalCompare(a.input.Path, b.input.Path) })
	slices.SortFunc(p.warnings, func(a, b warning) int { return naturalCompare(a.input, b.input) })
	p.seal()
	p.share()
	for _, u := range p.units {
		p.bytes += u.input.Bytes
	}
	return p, nil
}

// find lists the files of a plan that has no units yet.
func find(ctx context.Context, paths []string, opt Options) (*Plan, []foundFile, error) {
	if opt.Tree == nil {
		p, w, err := list(ctx, paths, opt)
		if err != nil {
			return nil, nil, err
		}
		p.faults(w.faults)
		for _, path := range w.empty {
			p.warnings = append(p.warnings, warning{path, "no file is in it"})
		}
		return p, w.files, nil
	}
	l, err := newListing(ctx, opt.Tree)
	if err != nil {
		return nil, nil, err
	}
	return &Plan{opt: opt, files: l, root: l.root, datasets: map[string]*hfDataset{}}, l.all(), nil
}

// list walks paths for a plan that has no units yet.
func list(ctx context.Context, paths []string, opt Options) (*Plan, *walker, error) {
	p := &Plan{opt: opt, files: system{}, datasets: map[string]*hfDataset{}}
	w := &walker{seen: map[string]bool{}}
	abs := make([]string, len(paths))
	for i, path := range paths {
		a, err := filepath.Abs(path)
		if err != nil {
			return nil, nil, err
		}
		abs[i] = a
	}
	var err error
	if p.root, err = root(abs, opt.Root); err != nil {
		return nil, nil, err
	}
	if opt.Exclude != "" {
		if w.exclude, err = filepath.Abs(opt.Exclude); err != nil {
			return nil, nil, err
		}
		if real, err := filepath.EvalSymlinks(w.exclude); err == nil { // it may not exist yet
			w.exclude = real
		}
	}
	return p, w, w.walk(ctx, abs)
}

// root is the directory that sources are relative to.
func root(abs []string, given string) (string, error) {
	if given != "" {
		r, err := filepath.Abs(given)
		if err != nil {
			return "", err
		}
		for _, a := range abs {
			if rel, err := filepath.Rel(r, a); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
				return "", fmt.Errorf("path %s is not under the root %s", a, r)
			}
		}
		return r, nil
	}
	common := ""
	for i, a := range abs {
		if info, err := os.Stat(a); err != nil {
			return "", err
		} else if !info.IsDir() || len(abs) > 1 {
			a = filepath.Dir(a)
		}
		if i == 0 {
			common = a
		}
		for common != a && !strings.HasPrefix(a, strings.TrimSuffix(common, "/")+"/") {
			common = filepath.Dir(common)
		}
	}
	return common, nil
}

// faults tells of places that were not looked into. What vanished meanwhile, or is
// at the end of a dangling link, is not there to be refused.
func (p *Plan) faults(fs []fault) {
	for _, f := range fs {
		if errors.Is(f.err, os.ErrNotExist) {
			p.warnings = append(p.warnings, warning{p.rel(f.path), "not looked into: " + f.err.Error()})
			continue
		}
		p.refused = append(p.refused, refusal{format.Input{Path: p.rel(f.path)}, fmt.Errorf("not looked into: %w", f.err)})
	}
}

// rel is a path as sources name it.
func (p *Plan) rel(abs string) string {
	r, err := filepath.Rel(p.root, abs)
	if err != nil {
		return filepath.ToSlash(abs)
	}
	return filepath.ToSlash(r)
}

// naturalCompare orders data_2 before data_10.
func naturalCompare(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		da, db := digits(a[i:]), digits(b[j:])
		if da == "" || db == "" {
			if a[i] != b[j] {
				return cmp.Compare(a[i], b[j])
			}
			i, j = i+1, j+1
			continue
		}
		ta, tb := strings.TrimLeft(da, "0"), strings.TrimLeft(db, "0")
		if c := cmp.Or(cmp.Compare(len(ta), len(tb)), strings.Compare(ta, tb)); c != 0 {
			return c
		}
		i, j = i+len(da), j+len(db)
	}
	// What has more to come is the greater; only zeros before numbers tell the rest apart.
	return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func digits(s string) string {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return s[:n]
}
