package export

import "hsx/internal/atomicfile"

// SetFS has a run use another file system.
func (p *Plan) SetFS(fs atomicfile.FS) { p.opt.fs = fs }

// PlainName is the file name of an id.
func PlainName(id string) string { return plainName(id) }

// The files of the export itself.
const (
	JournalName = journalName
	MappingName = mappingName
)
