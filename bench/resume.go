package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// same reports the first member in which a plan differs from that of the journal that
// it is to go on with. What does not touch the figures may differ.
func (p Plan) same(other Plan) error {
	for _, m := range []struct {
		name         string
		journal, now any
	}{
		{"arms", p.Arms, other.Arms},
		{"levels", p.Levels, other.Levels},
		{"number of prompts", p.NumPrompts, other.NumPrompts},
		{"digest of the prompts", p.Digest, other.Digest},
		{"runs", p.Runs, other.Runs},
		{"warm-up runs", p.WarmUpRuns, other.WarmUpRuns},
		{"parameters of requests", p.Params, other.Params},
		{"seed", p.Seed, other.Seed},
	} {
		journal, err := json.Marshal(m.journal)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		now, err := json.Marshal(m.now)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if !bytes.Equal(journal, now) {
			return fmt.Errorf("another measurement: %s: the journal has %s, this one %s", m.name, journal, now)
		}
	}
	return nil
}

// sameServer reports whether another server answers for an arm than the one that was
// measured before: their runs would be taken for one's.
func (l *Log) sameServer(now ArmInfo) error {
	for _, before := range l.Arms {
		a, b := before.Info, now.Info
		if before.Arm != now.Arm {
			continue
		}
		for _, m := range []struct{ name, before, now string }{
			{"engine", string(a.Engine), string(b.Engine)},
			{"version", a.Version, b.Version},
			{"model", a.Model, b.Model},
			{"speculation", fmt.Sprint(a.Speculation.On), fmt.Sprint(b.Speculation.On)},
			{"method of speculation", a.Speculation.Method, b.Speculation.Method},
			{"draft", a.Speculation.Draft, b.Speculation.Draft},
		} {
			if m.before != m.now {
				return fmt.Errorf("%s is not the server that was measured: %s: was %q, is %q", now.Arm, m.name, m.before, m.now)
			}
		}
	}
	return nil
}
