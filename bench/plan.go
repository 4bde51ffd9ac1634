package bench

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// check reports what cannot be measured.
func (p *Plan) check() error {
	switch {
	case len(p.Arms) == 0 || len(p.Levels) == 0 || len(p.Prompts) == 0:
		return fmt.Errorf("has %s, %s and %s, want at least one of each",
			counted(len(p.Arms), "arm"), counted(len(p.Levels), "level"), counted(len(p.Prompts), "prompt"))
	case p.Runs < 1 || p.WarmUpRuns < 0:
		return fmt.Errorf("has %d runs and %d warm-up runs, want at least 1 and 0", p.Runs, p.WarmUpRuns)
	case p.WarmUpRuns > 0 && len(p.WarmUp) == 0:
		return errors.New("has warm-up runs and no prompts for them")
	}
	arms, levels, ids := map[string]bool{"": true}, map[Level]bool{}, map[string]bool{}
	for _, arm := range p.Arms {
		if arms[arm.Name] {
			return fmt.Errorf("arm %q: want a name of its own", arm.Name)
		}
		arms[arm.Name] = true
		if strings.Contains(arm.URL+arm.Launch, secretMark) {
			return fmt.Errorf("arm %q: its URL or command is as a journal keeps it, without its secrets: give it anew", arm.Name)
		}
	}
	for _, l := range p.Levels {
		const slowest, fastest = 1e-4, 1e5 // conversations a second
		closed := l.Rate == 0 && l.Concurrency >= 1 && l.Concurrency <= maxInFlight
		open := l.Concurrency == 0 && l.Rate >= slowest && l.Rate <= fastest
		if !closed && !open || levels[l] {
			return fmt.Errorf("level of concurrency %d and rate %g: want, once, a concurrency from 1 to %d or a rate from %g to %g a second",
				l.Concurrency, l.Rate, maxInFlight, slowest, fastest)
		}
		levels[l] = true
	}
	for _, c := range p.Prompts {
		if len(c.Turns) == 0 || ids[c.ID] {
			return fmt.Errorf("prompt %q: want a turn, and an id of its own", c.ID)
		}
		ids[c.ID] = true
	}
	return nil
}

// secretMark stands where a secret was; net/url writes the same.
const secretMark = "xxxxx"

// withoutSecrets is the plan as the journal has it: without passwords of URLs, and the
// values of what is named like a secret.
func (p Plan) withoutSecrets() Plan {
	p.Arms = slices.Clone(p.Arms)
	for i, arm := range p.Arms {
		p.Arms[i].URL = secretMark // of what is no URL, nobody knows what is secret
		if u, err := url.Parse(arm.URL); err == nil {
			p.Arms[i].URL = hideSecrets(u.Redacted())
		}
		p.Arms[i].Launch = hideSecrets(arm.Launch)
	}
	p.Command = hideSecrets(p.Command)
	return p
}

func hideSecrets(text string) string {
	named := regexp.MustCompile(`(?i)((?:api[-_]?key|\btoken|[-_]token|password|secret)["']?(?:\s*[=:]\s*|\s+)|bearer\s+)("[^"]*"|'[^']*'|[^\s&"']+)`)
	return named.ReplaceAllString(text, "${1}"+secretMark)
}
