package capture

import (
	"time"

	"github.com/fsnotify/fsnotify"

	"hsx/format"
)

// Unit is what a plan makes one input of.
type Unit struct {
	Path  string
	Files []string
	Row   int
}

// Units are the inputs of a plan in their order.
func (p *Plan) Units() []Unit {
	var us []Unit
	for _, u := range p.units {
		us = append(us, Unit{u.input.Path, u.files, u.row})
	}
	return us
}

// Content is what decode makes of a file.
type Content struct {
	Name, Side, Ignored string
	Notes               []string
	Value               format.Value
	Answers             int
}

func Decode(data []byte, path string) (Content, error) {
	c, err := decode(data, path)
	if err != nil {
		return Content{}, err
	}
	return Content{c.name, c.side, c.ignored, c.notes, c.value, len(c.answers)}, nil
}

// Decompress unpacks data that is compressed, and says whether it is.
func Decompress(data []byte) (out []byte, compressed bool, err error) {
	how := compression(data)
	if how == "" {
		return nil, false, nil
	}
	out, err = decompress(data, how)
	return out, true, err
}

func NaturalCompare(a, b string) int { return naturalCompare(a, b) }

// The bounds that tests go up to.
const (
	MaxArrays   = maxArrays
	FreeSamples = freeSamples
	MaxRatio    = maxRatio
	FreeBytes   = freeBytes
	MinWindow   = minWindow
)

// SetOptions changes what a plan does when it runs.
func (p *Plan) SetOptions(opt Options) { p.opt = opt }

// FollowWith sets what only tests may: the free space of a directory, and the kind of
// its file system. Removed files show as free space within 2 s, also on a busy machine.
func FollowWith(fo FollowOptions, free func(string) (int64, error), network func(string) string) FollowOptions {
	fo.free, fo.network, fo.grace = free, network, 2*time.Second
	return fo
}

// WatchErrors reports whether a watcher takes an error, such as that events were lost,
// for a reason to look.
func WatchErrors(err error) bool {
	w := &watcher{
		fs:     &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)},
		events: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go w.run()
	w.fs.Errors <- err
	close(w.fs.Events) // the event before it is dealt with
	<-w.done
	return len(w.events) == 1
}
