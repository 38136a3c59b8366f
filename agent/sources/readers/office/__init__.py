"""Files of office programs: Office Open XML, OpenDocument, and csv beside the workbooks."""
