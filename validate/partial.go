package validate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/zeebo/xxh3"

	"hsx/shard"
)

// Audit is what a full read of a dataset has shown.
type Audit struct {
	Version string  `json:"hsx_version"` // of the hsx that wrote it
	Dataset string  `json:"dataset"`     // its directory
	Report  *Report `json:"report"`      // the verdict and the findings, as hsx validate gives them
	Stats   *Stats  `json:"stats"`
}

// PartialVersion is the version of partial reports that this package writes and reads.
const PartialVersion = 1

// Partial is the report of one part of a dataset: of a range of its shards, so that the
// parts in their order are the dataset in its order.
// It keeps what merging needs, not figures for people: the states of the scans, and
// findings by shard, so that those of all parts can be put in the order of the dataset.
type Partial struct {
	Format   int                        `json:"partial_version"`
	Version  string                     `json:"hsx_version"`
	Dataset  string                     `json:"dataset"`  // its directory
	Manifest string                     `json:"manifest"` // XXH3-128 of it: parts of one state of a dataset have one
	Settings string                     `json:"settings"` // what all parts must have been told alike
	Part     int                        `json:"part"`     // from 1
	Of       int                        `json:"of"`
	Count    int                        `json:"shard_count"` // of the whole dataset
	Scans    map[string]json.RawMessage `json:"scans"`       // the states, by name of the scan
	Shards   []ShardGroups              `json:"shards"`      // ascending; shards without findings are left out
}

// ShardGroups are the findings of one shard, sorted by rule. Of a rule, no more
// findings are kept than a whole report could show; the counts are of all.
type ShardGroups struct {
	Shard  int     `json:"shard"`
	Groups []Group `json:"groups"`
}

// NewPartial begins the report of part i of n, counted from 1. settings is what the
// caller was told, as text that is equal when it was told the same.
func NewPartial(ds *shard.Dataset, dir, version, settings string, i, n int) (*Partial, error) {
	if n < 1 || i < 1 || i > n {
		return nil, fmt.Errorf("partition %d/%d is not one, want i/n with i from 1 to n", i, n)
	}
	manifest, err := json.Marshal(ds.Manifest())
	if err != nil {
		return nil, err
	}
	return &Partial{
		Format: PartialVersion, Version: version, Dataset: dir, Settings: settings, Part: i, Of: n, Count: len(ds.Manifest().Shards),
		Manifest: shard.Digest(xxh3.Hash128(manifest).Bytes()).String(),
		Scans:    map[string]json.RawMessage{}, Shards: []ShardGroups{},
	}, nil
}

// Holds reports whether a shard is in this part.
func (p *Partial) Holds(shard int) bool {
	return shard >= p.Count*(p.Part-1)/p.Of && shard < p.Count*p.Part/p.Of
}

// AddShard takes what was found in a shard. Shards come in ascending order.
func (p *Partial) AddShard(shard int, found *Collector) {
	if len(found.groups) == 0 {
		return
	}
	e := ShardGroups{Shard: shard}
	for _, rule := range slices.Sorted(maps.Keys(found.groups)) {
		g := *found.groups[rule]
		g.Findings = slices.Clone(g.Findings[:min(len(g.Findings), max(0, found.keep-p.kept(rule)))])
		if g.Findings == nil {
			g.Findings = []Finding{}
		}
		e.Groups = append(e.Groups, g)
	}
	p.Shards = append(p.Shards, e)
}

// kept is how many findings of a rule this part has.
func (p *Partial) kept(rule string) int {
	n := 0
	for _, e := range p.Shards {
		for _, g := range e.Groups {
			if g.Rule == rule {
				n += len(g.Findings)
			}
		}
	}
	return n
}

// SetScan keeps the state of a scan.
func (p *Partial) SetScan(name string, state any) error {
	raw, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("scan %s: %w", name, err)
	}
	p.Scans[name] = raw
	return nil
}

// MergePartials puts the parts of one report together: it adds their findings to out
// in the order of the dataset, and returns the states of each scan in the order of the
// parts. The parts may come in any order; each must be there once.
func MergePartials(parts []*Partial, out *Collector) (map[string][]json.RawMessage, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("there are no partial reports, want all parts of one audit")
	}
	parts = slices.Clone(parts)
	slices.SortFunc(parts, func(a, b *Partial) int { return cmp.Compare(a.Part, b.Part) })
	for i, p := range parts {
		if err := p.check(parts[0], i+1); err != nil {
			return nil, err
		}
	}
	if len(parts) != parts[0].Of {
		return nil, fmt.Errorf("there are %d partial reports, want all %d parts", len(parts), parts[0].Of)
	}
	var shards []ShardGroups
	for _, p := range parts {
		shards = append(shards, p.Shards...)
	}
	slices.SortStableFunc(shards, func(a, b ShardGroups) int { return cmp.Compare(a.Shard, b.Shard) })
	for _, e := range shards {
		c := NewCollector(out.keep, nil)
		for _, g := range e.Groups {
			c.groups[g.Rule] = &g
		}
		out.Merge(c)
	}
	states := map[string][]json.RawMessage{}
	for name := range parts[0].Scans {
		for _, p := range parts {
			if p.Scans[name] == nil {
				return nil, fmt.Errorf("part %d/%d has no state of the scan %q, which part %d has", p.Part, p.Of, name, parts[0].Part)
			}
			states[name] = append(states[name], p.Scans[name])
		}
	}
	return states, nil
}

// check reports why a report cannot be part n of the audit that first is of.
func (p *Partial) check(first *Partial, n int) error {
	switch {
	case p.Format != PartialVersion:
		return fmt.Errorf("partial report has version %d, want %d", p.Format, PartialVersion)
	case p.Manifest != first.Manifest:
		return fmt.Errorf("part %d/%d is of dataset %q with manifest %s, part %d of %q with %s: want parts of one state of one dataset", p.Part, p.Of, p.Dataset, p.Manifest, first.Part, first.Dataset, first.Manifest)
	case p.Settings != first.Settings || p.Version != first.Version:
		return fmt.Errorf("part %d/%d was made by hsx %s with %q, part %d by %s with %q: want the same for all parts", p.Part, p.Of, p.Version, p.Settings, first.Part, first.Version, first.Settings)
	case p.Of != first.Of || p.Part > p.Of:
		return fmt.Errorf("part %d/%d is beside part %d/%d, want parts of one division", p.Part, p.Of, first.Part, first.Of)
	case p.Part != n:
		return fmt.Errorf("part %d/%d is given where part %d is wanted: each part must be there once", p.Part, p.Of, n)
	case len(p.Scans) != len(first.Scans):
		return fmt.Errorf("part %d/%d has the states of %d scans, part %d of %d", p.Part, p.Of, len(p.Scans), first.Part, len(first.Scans))
	}
	for _, e := range p.Shards {
		if e.Shard < 0 || !p.Holds(e.Shard) {
			return fmt.Errorf("part %d/%d has findings of shard %d, which is not in it", p.Part, p.Of, e.Shard)
		}
		for _, g := range e.Groups {
			if g.Count < len(g.Findings) {
				return fmt.Errorf("part %d/%d counts %d findings of %s in shard %d and lists %d", p.Part, p.Of, g.Count, g.Rule, e.Shard, len(g.Findings))
			}
		}
	}
	return nil
}
