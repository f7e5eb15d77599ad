"""The pages of the dashboard, one a file; `avlab.ui.page_files` finds them. This file is no page."""
