package validate

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"hsx/format"
	"hsx/shard"
)

// The bounds of a sample of the data. They let it take seconds on any dataset: what a
// sample costs is its states, and opening a shard costs its ids.
const (
	// DefaultSample is how many samples are read unless more or fewer are asked for.
	DefaultSample = 256

	selectBytes  = 4 << 30 // of states; one sample is read even if it is longer
	selectShards = 64      // that are opened, or n/2 when that is more
	selectHeads  = 64      // that are looked at in each shard, or 2n/shards when that is more
	selectPrefix = 256     // tokens of each that are compared
)

// chooseSamples picks up to n samples that stand for a dataset, always the same ones:
// of evenly spaced shards, the first and the last included, evenly spaced rows, again
// with the first and the last, and beside each of them the sample seen that shares the
// longest token prefix with it, if one does: rules that compare states at equal
// prefixes need such pairs.
//
// A shard that cannot be opened is represented by its row 0, for the scan to report.
func chooseSamples(ds *shard.Dataset, n int) (choice, error) {
	m := ds.Manifest()
	rowBytes := tokenBytes(m.Layout())
	if m.Rows <= int64(n) && m.Tokens*rowBytes <= selectBytes {
		return wholeDataset(ds), nil
	}
	if n <= 0 {
		return choice{}, fmt.Errorf("sample of %d is empty, want at least 1", n)
	}
	shards := slices.Collect(spaced(len(m.Shards), min(n, max(selectShards, n/2))))
	var all []candidate
	for _, i := range shards {
		found, err := selectLook(ds, i, max(selectHeads, 2*n/len(shards)))
		if err != nil {
			return choice{}, err
		}
		all = append(all, found...)
	}
	selectPair(all)
	c := selectTake(all, n, rowBytes)
	slices.SortFunc(c.refs, compareRefs)
	c.note = selectNote(m, c, rowBytes)
	return c, nil
}

// choice is what is to be read of a dataset.
type choice struct {
	refs  []Ref  // in the order of the dataset; nil: all
	bytes int64  // of states
	note  string // what part it is, "" when it is all
}

func wholeDataset(ds *shard.Dataset) choice {
	m := ds.Manifest()
	return choice{bytes: m.Tokens * tokenBytes(m.Layout())}
}

// tokenBytes is the number of bytes of the states of one token.
func tokenBytes(l format.Layout) (n int64) {
	for _, s := range l.States {
		n += int64(l.HiddenSize) * int64(s.DType.Size())
	}
	return n
}

// candidate is a sample that was looked at.
type candidate struct {
	ref     Ref
	length  int
	prefix  []int32 // its first tokens
	rank    int     // in its shard, in the order in which rows are taken
	partner int     // the candidate with the longest prefix in common, -1 if none
	common  int     // its length
	taken   bool
}

// selectLook reads up to n heads of a shard: of evenly spaced rows, and of the row
// after each, since what was captured from one conversation often lies together.
func selectLook(ds *shard.Dataset, i, n int) ([]candidate, error) {
	s, err := ds.Shard(i)
	if shard.IsCorrupt(err) {
		return []candidate{{ref: Ref{Shard: i}, partner: -1}}, nil
	} else if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }() // opened for reading: nothing can be lost
	var rows []int
	for r := range spaced(s.Rows(), max(1, n/2)) {
		rows = append(rows, r, min(r+1, s.Rows()-1))
	}
	slices.Sort(rows)
	rows = slices.Compact(rows)
	var found []candidate
	for at, rank := range selectRanks(len(rows)) {
		c := candidate{ref: Ref{i, rows[at]}, rank: rank, partner: -1}
		h, err := s.Head(rows[at])
		if err != nil && !shard.IsCorrupt(err) {
			return nil, err
		}
		c.length, c.prefix = len(h.Tokens), slices.Clone(h.Tokens[:min(len(h.Tokens), selectPrefix)])
		found = append(found, c)
	}
	return found, nil
}

// spaced yields up to n evenly spaced numbers below size, 0 and size-1 among them.
func spaced(size, n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		n := min(n, size)
		for i := range n {
			at := 0
			if n > 1 {
				at = int(int64(i) * int64(size-1) / int64(n-1))
			}
			if !yield(at) {
				return
			}
		}
	}
}

// selectRanks numbers n places so that any first few of them are spread evenly: the
// first, the last, the middle, the quarters, and so on.
func selectRanks(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	width := bits.Len(uint(max(n-2, 0)))
	key := func(i int) uint64 {
		switch i {
		case 0:
			return 0
		case n - 1:
			return 1
		}
		return 2 + bits.Reverse64(uint64(i))>>(64-width)
	}
	slices.SortFunc(order, func(a, b int) int { return int(key(a)) - int(key(b)) })
	ranks := make([]int, n)
	for rank, i := range order {
		ranks[i] = rank
	}
	return ranks
}

// selectPair finds for each candidate the one with the longest prefix in common. In
// the order of their tokens that is a neighbour.
func selectPair(all []candidate) {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return slices.Compare(all[a].prefix, all[b].prefix) })
	for k := 1; k < len(order); k++ {
		a, b := &all[order[k-1]], &all[order[k]]
		common := 0
		for common < min(len(a.prefix), len(b.prefix)) && a.prefix[common] == b.prefix[common] {
			common++
		}
		// One token in common is what all samples have that begin alike.
		if common > max(1, a.common) {
			a.partner, a.common = order[k], common
		}
		if common > max(1, b.common) {
			b.partner, b.common = order[k-1], common
		}
	}
}

// selectTake takes up to n candidates, those of low rank from every shard first, each
// followed by its partner, as long as their states fit in selectBytes.
func selectTake(all []candidate, n int, rowBytes int64) (out choice) {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return all[a].rank - all[b].rank })
	take := func(c *candidate) {
		size := int64(c.length) * rowBytes
		if c.taken || len(out.refs) == n || len(out.refs) > 0 && out.bytes+size > selectBytes {
			return
		}
		c.taken = true
		out.refs = append(out.refs, c.ref)
		out.bytes += size
	}
	for _, i := range order {
		take(&all[i])
		if all[i].partner >= 0 && all[i].taken {
			take(&all[all[i].partner])
		}
	}
	return out
}

// selectNote says what a choice leaves out.
func selectNote(m *shard.Manifest, c choice, rowBytes int64) string {
	shards := map[int]bool{}
	for _, r := range c.refs {
		shards[r.Shard] = true
	}
	return fmt.Sprintf("read %d of %d samples, %s of %s of states, in %d of %d shards",
		len(c.refs), m.Rows, selectSize(c.bytes), selectSize(m.Tokens*rowBytes), len(shards), len(m.Shards))
}

// selectSize writes a number of bytes with three digits.
func selectSize(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	x, i := float64(n)/1024, 0
	for x >= 1000 && i < len(units)-1 {
		x, i = x/1024, i+1
	}
	return fmt.Sprintf("%.3g %ciB", x, units[i])
}
