"""Reports as a single HTML page: `content` reads the runs, `page.render` renders them."""
