package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrParts means that datasets which are parts of a whole do not make it.
var ErrParts = errors.New("parts do not make a whole")

// Partition says which part of a divided whole a dataset is.
type Partition struct {
	Index int    `json:"index"` // from 1
	Of    int    `json:"of"`    // parts
	Plan  string `json:"plan"`  // a digest of what was divided: the parts of one whole have one
	Done  bool   `json:"done"`  // the part holds all that is to be in it
}

// String is "part 3/8".
func (p *Partition) String() string { return fmt.Sprintf("part %d/%d", p.Index, p.Of) }

func (p *Partition) check() error {
	if p != nil && (p.Index < 1 || p.Index > p.Of) {
		return fmt.Errorf("partition %d/%d is not one, want i/n with i from 1 to n", p.Index, p.Of)
	}
	return nil
}

// begun is the partition of a dataset that has nothing yet.
func (p *Partition) begun() *Partition {
	if p == nil {
		return nil
	}
	return &Partition{Index: p.Index, Of: p.Of, Plan: p.Plan}
}

// goOn reports why a writer that was told want cannot go on with a dataset that is have,
// as the second half of a sentence about it.
func (p *Partition) goOn(want *Partition) error {
	switch {
	case p == nil && want == nil:
		return nil
	case p == nil:
		return fmt.Errorf("is not %s of a whole", want)
	case want == nil:
		return fmt.Errorf("is %s of a whole, to which nothing else can be added before they are merged", p)
	case p.Index != want.Index || p.Of != want.Of:
		return fmt.Errorf("is %s of a whole, not %s", p, want)
	case p.Plan != want.Plan:
		return fmt.Errorf("is %s of plan %.12s, this run has plan %.12s: the inputs or what was said of them changed since", p, p.Plan, want.Plan)
	}
	return nil
}

// Finish commits at the end of a run that has put all there is: a dataset that is a
// part is done then. To any other it is Commit.
func (w *Writer) Finish(ctx context.Context) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	return w.ask(ctx, task{done: true})
}

// arrange puts parts of a whole in its order. The error, which wraps ErrParts, names
// each part that is missing, there twice, not done, or of another whole. Datasets that
// are no parts stay as they are.
func arrange(sources []*Dataset) error {
	first := slices.IndexFunc(sources, func(d *Dataset) bool { return d.manifest.Partition != nil })
	if first < 0 {
		return nil
	}
	var faults []string
	fault := func(f string, args ...any) { faults = append(faults, fmt.Sprintf(f, args...)) }
	whole := sources[first].manifest.Partition
	holder := map[int]string{} // by index
	for _, d := range sources {
		p, src := d.manifest.Partition, d.place.String()
		switch {
		case p == nil:
			fault("%s is no part, and %s is %s", src, sources[first].place, whole)
			continue
		case p.Of != whole.Of:
			fault("%s is %s, and %s is %s", src, p, sources[first].place, whole)
			continue
		case p.Plan != whole.Plan:
			fault("%s has plan %.12s, and %s has %.12s: they listed other inputs, or were told other things of them", src, p.Plan, sources[first].place, whole.Plan)
			continue
		case holder[p.Index] != "":
			fault("%s is there twice, in %s and %s", p, holder[p.Index], src)
		case !p.Done:
			fault("%s in %s is not done: run its command again", p, src)
		}
		holder[p.Index] = src
	}
	if missing := missingParts(whole.Of, holder); missing != "" {
		fault("%s", missing)
	}
	if len(faults) > 0 {
		return fmt.Errorf("%s: %w", strings.Join(faults, "; "), ErrParts)
	}
	slices.SortFunc(sources, func(a, b *Dataset) int {
		return cmp.Compare(a.manifest.Partition.Index, b.manifest.Partition.Index)
	})
	return nil
}

// missingParts is "part 2 of 8 is missing" or "parts 2, 5-7 of 8 are missing", and ""
// when all are there.
func missingParts(of int, holder map[int]string) string {
	var runs []string
	n := 0
	for i := 1; i <= of; i++ {
		if holder[i] != "" {
			continue
		}
		first := i
		for i < of && holder[i+1] == "" {
			i++
		}
		n += i - first + 1
		if first == i {
			runs = append(runs, fmt.Sprint(i))
		} else {
			runs = append(runs, fmt.Sprintf("%d-%d", first, i))
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("part %s of %d is missing", runs[0], of)
	}
	return fmt.Sprintf("parts %s of %d are missing", strings.Join(runs, ", "), of)
}
