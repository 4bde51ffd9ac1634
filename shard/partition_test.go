package shard_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// part makes a dataset that is a part of a whole, of one sample with the part's number;
// done says whether its run came to its end.
func part(t *testing.T, p shard.Partition, done bool) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), fmt.Sprintf("part%d", p.Index))
	w, err := shard.OpenWriter(dir, shard.WithFS(shard.Options{Partition: &p}, hasty()))
	if err != nil {
		t.Fatal(err)
	}
	err = w.Put(t.Context(), partSample(p.Index))
	if done {
		err = errors.Join(err, w.Finish(t.Context()))
	}
	if err := errors.Join(err, w.Commit(t.Context()), w.Close()); err != nil { // which is no end, and changes none
		t.Fatal(err)
	}
	return dir
}

func partSample(i int) *format.Sample {
	return hsxtest.Sample(hsxtest.Spec{Hidden: 4, Layers: []format.Layer{2}, DType: format.BFloat16}, i, 5)
}

func TestPartition(t *testing.T) {
	t.Parallel()
	of := func(i, n int) shard.Partition { return shard.Partition{Index: i, Of: n, Plan: "one"} }
	done := func(i, n int) string { return part(t, of(i, n), true) }
	plain := filepath.Join(t.TempDir(), "plain")
	write(t, plain, small(), partSample(9))
	first, second, third := done(1, 3), done(2, 3), done(3, 3)
	empty := filepath.Join(t.TempDir(), "empty")
	w, err := shard.OpenWriter(empty, shard.Options{Partition: &shard.Partition{Index: 2, Of: 3, Plan: "one", Done: true}})
	if err = errors.Join(err, w.Finish(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		sources []string
		want    []string // in the error
		samples []int
	}{
		"in order":     {[]string{first, second, third}, nil, []int{1, 2, 3}},
		"in any order": {[]string{third, first, second}, nil, []int{1, 2, 3}},
		"one":          {[]string{done(1, 1)}, nil, []int{1}},
		"an empty one": {[]string{third, empty, first}, nil, []int{1, 3}},
		"missing":      {[]string{second, first}, []string{"part 3 of 3 is missing"}, nil},
		"several missing": {[]string{done(3, 9), done(6, 9)}, []string{
			"parts 1-2, 4-5, 7-9 of 9 are missing",
		}, nil},
		"twice":        {[]string{first, second, done(2, 3), third}, []string{"part 2/3 is there twice, in " + second + " and "}, nil},
		"the same":     {[]string{first, second, third, second}, []string{"part 2/3 is there twice, in " + second + " and " + second}, nil},
		"not done":     {[]string{first, part(t, of(2, 3), false), third}, []string{"part 2/3 in ", " is not done"}, nil},
		"another cut":  {[]string{first, second, third, done(2, 4)}, []string{"is part 2/4, and " + first + " is part 1/3"}, nil},
		"another plan": {[]string{first, part(t, shard.Partition{Index: 2, Of: 3, Plan: "two"}, true), third}, []string{"has plan two, and " + first + " has one", "part 2 of 3 is missing"}, nil},
		"no part":      {[]string{plain, first, second, third}, []string{plain + " is no part, and " + first + " is part 1/3"}, nil},
		"all at once":  {[]string{first, first, part(t, of(2, 4), false)}, []string{"twice", "part 2/4", "parts 2-3 of 3 are missing"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			given := strings.Join(tc.sources, " ")
			m, err := mergeDirs(out, tc.sources, swift())
			if strings.Join(tc.sources, " ") != given {
				t.Errorf("Merge changed its arguments to %q", tc.sources)
			}
			if tc.want != nil {
				for _, text := range tc.want {
					if !errors.Is(err, shard.ErrParts) || !strings.Contains(err.Error(), text) {
						t.Errorf("Merge: got error %v, want %v with %q", err, shard.ErrParts, text)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var want []*format.Sample
			for _, i := range tc.samples {
				want = append(want, partSample(i))
			}
			compare(t, open(t, out), want)
			if m.Partition != nil || open(t, out).Manifest().Partition != nil {
				t.Errorf("the whole is %s", m.Partition)
			}
		})
	}
}

// A part that is opened again goes on, and nothing else does with it.
func TestPartitionGoesOn(t *testing.T) {
	t.Parallel()
	mine := shard.Partition{Index: 2, Of: 3, Plan: "one"}
	dir := part(t, mine, true)
	plain := filepath.Join(t.TempDir(), "plain")
	write(t, plain, small(), partSample(9))
	for name, tc := range map[string]struct {
		dir  string
		part *shard.Partition
		want string
	}{
		"none":          {dir, nil, "is part 2/3 of a whole, to which nothing else"},
		"another":       {dir, &shard.Partition{Index: 1, Of: 3, Plan: "one"}, "is part 2/3 of a whole, not part 1/3"},
		"another cut":   {dir, &shard.Partition{Index: 2, Of: 4, Plan: "one"}, "is part 2/3 of a whole, not part 2/4"},
		"another plan":  {dir, &shard.Partition{Index: 2, Of: 3, Plan: "two"}, "of plan one, this run has plan two"},
		"of what is no": {plain, &mine, "is not part 2/3 of a whole"},
	} {
		if _, err := shard.OpenWriter(tc.dir, shard.Options{Partition: tc.part}); !errors.Is(err, shard.ErrMismatch) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got error %v, want %v with %q", name, err, shard.ErrMismatch, tc.want)
		}
	}
	w, err := shard.OpenWriter(dir, shard.WithFS(shard.Options{Partition: &mine}, hasty()))
	if err != nil {
		t.Fatal(err)
	}
	state := func() bool { return open(t, dir).Manifest().Partition.Done }
	if err := w.Commit(t.Context()); err != nil || !state() {
		t.Errorf("Commit of nothing new: done is %t, want it as it was: %v", state(), err)
	}
	if err := errors.Join(w.Put(t.Context(), partSample(7)), w.Commit(t.Context())); err != nil || state() {
		t.Errorf("Commit of a further sample: done is %t, want false: %v", state(), err)
	}
	if err := errors.Join(w.Finish(t.Context()), w.Close()); err != nil || !state() {
		t.Errorf("Finish: done is %t, want true: %v", state(), err)
	}
	compare(t, open(t, dir), []*format.Sample{partSample(2), partSample(7)})
}
