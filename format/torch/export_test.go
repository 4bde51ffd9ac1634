package torch

// RunPickle runs the machine alone.
func RunPickle(data []byte) error {
	_, err := (&machine{data: data}).run()
	return err
}

// Members are the names and the contents that the directory alone gives.
func Members(data []byte) (names []string, contents [][]byte, err error) {
	d, err := readDirectory(data)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range d.members {
		names, contents = append(names, m.name), append(contents, m.data)
	}
	return names, contents, nil
}
