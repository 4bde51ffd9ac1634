package capture

import (
	"path/filepath"
	"slices"
	"strings"

	"hsx/format"
)

// group makes units of the files that were found.
func (p *Plan) group(files []foundFile) {
	byDir := map[string][]foundFile{}
	for _, f := range files {
		dir := filepath.Dir(f.path)
		byDir[dir] = append(byDir[dir], f)
	}
	names := map[string]bool{}
	for _, f := range files {
		names[f.path] = true
	}
	taken := func(path string) bool { return names[path] || byDir[path] != nil }
	for dir, files := range byDir {
		var arrays []foundFile
		for _, f := range files {
			switch {
			case strings.HasSuffix(f.path, lockSuffix):
				p.lockFile(f, names)
			case strings.HasSuffix(f.path, arraySuffix): // content is checked when it is read
				arrays = append(arrays, f)
			default:
				p.units = append(p.units, unit{input: p.input(f.path, f), files: []string{f.path}, row: -1})
			}
		}
		p.groupArrays(dir, arrays, taken)
	}
	p.findDatasets()
}

func (p *Plan) input(abs string, files ...foundFile) format.Input {
	in := format.Input{Path: p.rel(abs)}
	for _, f := range files {
		in.Bytes += f.size
		in.ModTime = max(in.ModTime, f.modTime)
	}
	return in
}

// arraySuffix ends the names of the files that make a sample together.
const arraySuffix = ".npy"

// lockSuffix ends the name of the lock that vLLM's connector holds while it writes.
const lockSuffix = ".lock"

func (p *Plan) lockFile(f foundFile, names map[string]bool) {
	if !names[strings.TrimSuffix(f.path, lockSuffix)] {
		p.warnings = append(p.warnings, warning{p.rel(f.path), "lock without the file it guards: the writer failed, or has not begun"})
	}
}

// groupArrays makes one unit of the .npy files of a directory, or, where a --map glob
// matches several of them, one for each text that its star stands for. A name that
// another file or directory has, as taken says, is not given to a unit.
func (p *Plan) groupArrays(dir string, files []foundFile, taken func(path string) bool) {
	if len(files) == 0 {
		return
	}
	stars := make([]string, len(files))
	several := false
	for _, m := range p.opt.Facts.Map {
		n := 0
		for i, f := range files {
			if star, ok := m.Match(filepath.Base(f.path)); ok {
				stars[i] = star
				n++
			}
		}
		several = several || n > 1
	}
	groups := map[string][]foundFile{}
	for i, f := range files {
		star := ""
		if several {
			star = stars[i]
		}
		groups[star] = append(groups[star], f)
	}
	for star, files := range groups {
		slices.SortFunc(files, func(a, b foundFile) int { return strings.Compare(a.path, b.path) })
		name := dir
		switch {
		case several && (star == "" || star == "." || star == ".." || taken(filepath.Join(dir, star))):
			name = files[0].path // the star stands for nothing that could name them
		case several:
			name = filepath.Join(dir, star)
		case len(files) == 1 && dir == p.root:
			name = files[0].path // given alone
		case dir == p.root && !taken(filepath.Join(dir, filepath.Base(dir))):
			name = filepath.Join(dir, filepath.Base(dir)) // "." would be every such directory's
		}
		u := unit{input: p.input(name, files...), kind: arraysUnit, row: -1}
		for _, f := range files {
			u.files = append(u.files, f.path)
		}
		p.units = append(p.units, u)
	}
}
