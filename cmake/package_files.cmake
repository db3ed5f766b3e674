# Of what cpack is about to pack: man pages and changelogs are compressed, as Debian has them.
file(GLOB_RECURSE pages LIST_DIRECTORIES false ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*/usr/share/man/*.[0-9] ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*/changelog.Debian)
foreach(page ${pages})
  execute_process(COMMAND gzip -9nf ${page} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
