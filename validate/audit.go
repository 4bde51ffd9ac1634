package validate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"hsx/format"
	"hsx/shard"
)

// RunAudit reads a whole dataset for its findings, as [Run] does with Options.All, and
// for its statistics. dir and version are what the audit says of itself.
func RunAudit(ctx context.Context, ds *shard.Dataset, in Input, opt Options, dir, version string) (*Audit, error) {
	start := time.Now()
	p, _, err := newAuditPlan(ds, in, opt)
	if err != nil {
		return nil, err
	}
	scans, err := p.engine(ds, wholeDataset(ds).bytes).run(ctx, jobsOf(ds, nil))
	if err != nil {
		return nil, err
	}
	return p.audit(ctx, ds, scans, start, dir, version)
}

// RunPartial reads the shards of part i of n, counted from 1, for [MergeAudit].
func RunPartial(ctx context.Context, ds *shard.Dataset, in Input, opt Options, dir, version string, i, n int) (*Partial, error) {
	p, settings, err := newAuditPlan(ds, in, opt)
	if err != nil {
		return nil, err
	}
	part, err := NewPartial(ds, dir, version, settings, i, n)
	if err != nil {
		return nil, err
	}
	var jobs []shardJob
	total := int64(0)
	for j, s := range ds.Manifest().Shards {
		if part.Holds(j) {
			jobs = append(jobs, shardJob{shard: j})
			total += s.Tokens * tokenBytes(p.layout)
		}
	}
	e := p.engine(ds, total)
	e.each = part.AddShard
	scans, err := e.run(ctx, jobs)
	if err != nil {
		return nil, err
	}
	for k, s := range scans {
		if err := part.SetScan(auditScan(k, s), s); err != nil {
			return nil, err
		}
	}
	return part, nil
}

// MergeAudit makes of all parts of a dataset the audit that [RunAudit] would make. It
// must be given what the parts were made with, and reads again only samples that
// findings across samples call for. The error says which part does not belong here.
func MergeAudit(ctx context.Context, ds *shard.Dataset, in Input, opt Options, parts []*Partial) (*Audit, error) {
	start := time.Now()
	p, settings, err := newAuditPlan(ds, in, opt)
	if err != nil {
		return nil, err
	}
	states, err := MergePartials(parts, p.out)
	if err != nil {
		return nil, err
	}
	first := parts[0]
	if here, err := NewPartial(ds, first.Dataset, first.Version, settings, 1, 1); err != nil {
		return nil, err
	} else if here.Manifest != first.Manifest {
		return nil, fmt.Errorf("parts are of a dataset with manifest %s, want %s: it has changed since, or it is another", first.Manifest, here.Manifest)
	} else if settings != first.Settings {
		return nil, fmt.Errorf("parts were made with %s, want %s", first.Settings, settings)
	}
	scans := p.scans()
	for k, s := range scans {
		name := auditScan(k, s)
		if states[name] == nil {
			return nil, fmt.Errorf("parts have no state of the scan %s", name)
		}
		for _, state := range states[name] {
			later := p.scans()[k]
			if err := json.Unmarshal(state, later); err != nil {
				return nil, fmt.Errorf("state of the scan %s: %w", name, err)
			}
			s.add(later)
		}
	}
	return p.audit(ctx, ds, scans, start, first.Dataset, first.Version)
}

// newAuditPlan also gives the settings that all parts of an audit share.
func newAuditPlan(ds *shard.Dataset, in Input, opt Options) (p *plan, settings string, err error) {
	if p, err = newPlan(ds, in, opt); err != nil {
		return nil, "", err
	}
	p.stats = true
	settings, err = p.settings()
	return p, settings, err
}

// audit finishes the scans of all shards.
func (p *plan) audit(ctx context.Context, ds *shard.Dataset, scans []scan, start time.Time, dir, version string) (*Audit, error) {
	if err := p.finish(ctx, ds, scans); err != nil {
		return nil, err
	}
	a := &Audit{Version: version, Dataset: dir, Report: p.report(scans), Stats: scans[len(scans)-1].(*StatScan).Stats()}
	for _, g := range a.Report.Groups {
		if g.Rule == "duplicate-sample" {
			a.Stats.Duplicates = g.Count
		}
	}
	a.Report.Seconds = time.Since(start).Seconds()
	return a, nil
}

// auditScan names scan k in a partial report.
func auditScan(k int, s scan) string { return fmt.Sprintf("%02d %T", k, s) }

// settings is what has to be the same for all parts of an audit: what decides which
// scans run, and what they keep.
func (p *plan) settings() (string, error) {
	b, err := json.Marshal(struct {
		Rules  []string      `json:"rules"`
		Keep   int           `json:"keep"`
		Target format.Target `json:"target"`
		Draft  bool          `json:"draft"`
	}{p.rules, p.out.keep, p.in.Target, p.in.Draft != nil})
	return string(b), err
}

// draftTokens says which tokens a draft can say, nil when it can say all or does not
// tell.
func draftTokens(c *Checkpoint) func(token int32) bool {
	if c == nil {
		return nil
	}
	d2t, present, err := c.vector("d2t")
	if !present || err != nil {
		return nil // which a rule of the checkpoint reports
	}
	says := make(map[int32]bool, d2t.N)
	for i := range d2t.N {
		says[int32(d2t.At(i))+int32(i)] = true
	}
	return func(token int32) bool { return says[token] }
}
