package capture

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"hsx/format"
	"hsx/format/hfdata"
	"hsx/format/producer"
	"hsx/internal/mapped"
)

// hfDataset is a Hugging Face dataset whose rows have their states in files beside it.
// It is opened when the first of these files is, and stays mapped until close.
type hfDataset struct {
	from   files
	dir    string
	names  []string // of the stream files, in their order
	broken error    // what is wrong with the list of them

	mu      sync.Mutex
	opened  bool
	err     error
	streams []*hfdata.Stream
	files   []*mapped.File
	rows    int
}

const (
	stateFile = "state.json"    // of a dataset, lists its streams
	statesDir = "hidden_states" // of speculators, below a dataset's directory
)

// findDatasets gives the files of speculators' layout their row: hs_<row> in the
// directory of a dataset, or in hidden_states below it.
func (p *Plan) findDatasets() {
	if name := p.opt.Facts.Producer; name != "" && name != "speculators" {
		return // the user knows better
	}
	numbered := regexp.MustCompile(`^hs_([0-9]+)\.safetensors$`)
	found := map[*hfDataset]bool{}
	for i := range p.units {
		u := &p.units[i]
		m := numbered.FindStringSubmatch(filepath.Base(u.files[0]))
		if m == nil {
			continue
		}
		dir := filepath.Dir(u.files[0])
		set := p.datasetIn(dir)
		if set == nil && filepath.Base(dir) == statesDir {
			set = p.datasetIn(filepath.Dir(dir))
		}
		if set == nil {
			continue
		}
		u.set = set
		u.row, _ = strconv.Atoi(m[1]) // too large a number gives the largest int, a row that no dataset has
		found[set] = true
	}
	for set := range found {
		p.warnMissing(set, numbered)
	}
}

// datasetIn is the dataset of a directory, nil when there is none. Without its tokens
// and masks the files beside it would pass for another producer's, so a damaged list
// breaks the dataset; only a file of another program that has the name is passed over.
func (p *Plan) datasetIn(dir string) *hfDataset {
	if set, ok := p.datasets[dir]; ok {
		return set
	}
	var set *hfDataset
	data, err := p.files.side(filepath.Join(dir, stateFile))
	if data != nil || err != nil {
		set = &hfDataset{from: p.files, dir: dir, broken: err}
		if err == nil {
			set.names, set.broken = hfdata.ParseState(data)
		}
		if errors.Is(set.broken, format.ErrUnsupported) && !strings.Contains(string(data), `"_data_files"`) {
			set = nil
		}
	}
	p.datasets[dir] = set
	return set
}

// warnMissing tells of rows without a file, whether the files are inputs of this run
// or not. A producer skips samples that are too long, so they are no fault by
// themselves.
func (p *Plan) warnMissing(set *hfDataset, numbered *regexp.Regexp) {
	defer set.close()
	if set.open() != nil {
		return // every file of it will be refused with the reason
	}
	var have []int
	for _, dir := range []string{set.dir, filepath.Join(set.dir, statesDir)} {
		names, err := p.files.names(dir)
		if err != nil {
			continue // one of the two need not be there
		}
		for _, name := range names {
			if m := numbered.FindStringSubmatch(name); m != nil {
				if row, err := strconv.Atoi(m[1]); err == nil && row < set.rows {
					have = append(have, row)
				}
			}
		}
	}
	slices.Sort(have)
	have = slices.Compact(have)
	n := set.rows - len(have)
	if n == 0 {
		return
	}
	const most = 5
	var missing []string
	for row, i := 0, 0; len(missing) < min(n, most); row++ {
		if i < len(have) && have[i] == row {
			i++
			continue
		}
		missing = append(missing, strconv.Itoa(row))
	}
	list := strings.Join(missing, ", ")
	if n > most {
		list += ", …"
	}
	p.warnings = append(p.warnings, warning{p.rel(filepath.Join(set.dir, stateFile)), fmt.Sprintf("%d of %d rows have no hidden-state file: %s", n, set.rows, list)})
}

// open maps the dataset's streams unless they are.
func (s *hfDataset) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opened {
		s.opened = true
		s.err = s.broken
		for i := 0; i < len(s.names) && s.err == nil; i++ {
			if err := s.add(s.names[i]); err != nil {
				s.err = fmt.Errorf("%s: %w", s.names[i], err)
			}
		}
	}
	return s.err
}

// add maps one stream.
func (s *hfDataset) add(name string) error {
	f, err := s.from.open(filepath.Join(s.dir, name))
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	return mapped.Guard(func() error {
		st, err := hfdata.Open(f.Bytes())
		if err == nil {
			s.streams = append(s.streams, st)
			s.rows += st.Len()
		}
		return err
	})
}

// row is the tokens and mask of one row.
func (s *hfDataset) row(i int) (*producer.Row, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	left := i
	for _, st := range s.streams {
		if left >= st.Len() {
			left -= st.Len()
			continue
		}
		r := &producer.Row{Index: i}
		err := mapped.Guard(func() (err error) {
			r.Tokens, r.LossMask, err = st.Row(left)
			return err
		})
		return r, err
	}
	return nil, fmt.Errorf("row %d is not there: it has %d rows", i, s.rows)
}

// close unmaps the dataset, which may be opened again.
func (s *hfDataset) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		_ = f.Close() // mapped for reading: nothing can be lost
	}
	s.opened, s.err, s.streams, s.files, s.rows = false, nil, nil, nil, 0
}

// closeDatasets unmaps all datasets. No input may be open.
func (p *Plan) closeDatasets() {
	for _, set := range p.datasets {
		if set != nil {
			set.close()
		}
	}
}
