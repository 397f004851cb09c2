"""Questions about runtime settings and source trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.tables.stored import StoredRows

if TYPE_CHECKING:
    from firstlight.tables.setting_rows import RuntimeSetting, SourceTag


class SettingLookups(StoredRows):
    """The group `settings`. None means that the tables do not know the name, never that nothing reads it."""

    __slots__ = ()

    @property
    def runtime_settings(self) -> tuple[RuntimeSetting, ...]:
        return self._rows("runtime_settings")

    @property
    def source_tags(self) -> tuple[SourceTag, ...]:
        return self._rows("source_tags")

    def runtime_setting(self, name: str) -> RuntimeSetting | None:
        """The row of a variable: runtime_setting('NCCL_DEBUG').read_by is NCCL."""
        return next((row for row in self.runtime_settings if row.name == name), None)

    def source_tag(self, project: str, tag: str) -> SourceTag | None:
        """The commit of a release: source_tag('cutlass', 'v4.2.1').commit; the v may be left out."""
        rows = (row for row in self.source_tags if row.project == project)
        return next((row for row in rows if row.tag.lstrip("v") == tag.lstrip("v")), None)
