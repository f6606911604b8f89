module gangline.test/servers/pause

go 1.24.0
