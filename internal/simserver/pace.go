package simserver

import (
	"context"
	"math"
	"time"
)

// pace keeps the times of one answer. It counts from the plan and not from when a
// timer fired, so that late timers do not add up.
type pace struct {
	next  time.Time
	scale float64
	timer *time.Timer
}

// pace returns that of the n-th request, which begins now.
func (s *Server) pace(n int64) *pace {
	p := &pace{next: time.Now(), scale: 1}
	if s.opt.Spread > 0 {
		d := dice(mix(s.opt.Seed ^ uint64(s.opt.Steps)<<32)) // two arms do not share their noise
		z := normal(d, drawRequest, int(n)) + normal(d, drawPhase, int(n-1)/s.opt.Phase)
		p.scale = math.Exp(s.opt.Spread * z)
	}
	return p
}

// normal is a draw of the standard normal distribution, by Box and Muller.
func normal(d dice, kind, i int) float64 {
	r := math.Sqrt(-2 * math.Log(1-d.unit(kind, i, 0)))
	return r * math.Cos(2*math.Pi*d.unit(kind, i, 1))
}

// wait returns d after the end of the wait before, or with an error once ctx ends or
// the server is dead.
func (p *pace) wait(ctx context.Context, dead <-chan struct{}, d time.Duration) error {
	p.next = p.next.Add(time.Duration(p.scale * float64(d)))
	left := time.Until(p.next)
	if left <= 0 {
		select {
		case <-dead:
			return errCut
		default:
			return ctx.Err()
		}
	}
	if p.timer == nil {
		p.timer = time.NewTimer(left)
	} else {
		p.timer.Reset(left)
	}
	select {
	case <-p.timer.C:
		return nil
	case <-dead:
		p.timer.Stop()
		return errCut
	case <-ctx.Done():
		p.timer.Stop()
		return ctx.Err()
	}
}

// stepTime is how long a step takes now.
func (s *Server) stepTime(st step) time.Duration {
	k := time.Duration(st.drafted)
	d := s.opt.Step + k*s.opt.Draft
	if s.opt.Crowd > 0 {
		s.mu.Lock()
		others := max(s.running-1, 0)
		s.mu.Unlock()
		d += time.Duration(others) * time.Duration(s.opt.Steps+1) * s.opt.Crowd
	}
	return d
}
